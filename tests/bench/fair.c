/*
 * Two clients that want more than there is: equal weights, both backlogged, products 100 times
 * apart in size; and a client with one small product at a time beside a flood of large ones. The
 * daemon is fair between uids, so the two run as two uids where this process may change them.
 *
 * A product's device seconds contain its wait for what was before it in the device's queue, so
 * under load their sums count the same time twice. What decides is therefore how much of its own
 * rate alone each keeps: the device time of a product is 1 / (that rate). That holds when it is the
 * device that bounds the rate, so small products come sixteen to a message, and are no smaller than
 * 1536^3: of 1024^3, 6 us of an H200, the daemon takes one in 7 us from one connection. A sum of
 * both rates over 100 % of alone shows that one of them was not the device's. The daemon's own sums
 * stand beside it.
 */
#include <stdio.h>

#include "ask.h"
#include "crew.h"
#include "work.h"

#include <string.h>
#include <unistd.h>

#define START_SECONDS 60.0
#define FIRST_UID     61001 /* of nobody */
#define OPTIONS       "socket seconds solo small large flood single"

struct side {
    const char *shape, *in_flight, *batch; /* batch: products of a message */
};

struct setting {
    const char *socket;
    double seconds, solo;
    bool has_two_uids;
};

static int add(struct crew *crew, const struct setting *s, const struct side *side)
{
    char uid[16];
    const char *argv[16] = {"gemmd-bench",   "member",  "--shape",   side->shape, "--in-flight",
                            side->in_flight, "--batch", side->batch, "--uid",     uid};
    size_t count = 10;
    (void)snprintf(uid, sizeof(uid), "%zu", s->has_two_uids ? FIRST_UID + crew->count : 0);
    if (s->socket) {
        argv[count++] = "--socket";
        argv[count++] = s->socket;
    }
    return crew_add(crew, argv, NULL);
}

/* With two uids, else with one. */
static bool open_crew(struct crew *crew, struct setting *s, const struct side sides[2])
{
    for (;;) {
        if (crew_init(crew) < 0 || add(crew, s, &sides[0]) < 0 || add(crew, s, &sides[1]) < 0)
            return false;
        if (crew_await(crew, START_SECONDS))
            return true;
        printf("# %s: %s\n", s->has_two_uids ? "as two uids" : "as one uid", crew->page->why);
        crew_deinit(crew);
        if (!s->has_two_uids)
            return false;
        s->has_two_uids = false;
    }
}

static bool round_of(struct crew *crew, double seconds, uint64_t members)
{
    bool is_done = crew_round(crew, seconds, members);
    if (!is_done)
        printf("# failed: %s\n", crew->page->why);
    return is_done;
}

static int backlogged(struct setting *s, const struct side sides[2])
{
    cleanup(crew_deinit) struct crew crew = CREW_NULL;
    double alone[2], kept[2], device[2];
    if (!open_crew(&crew, s, sides))
        return 1;
    const struct crew_report *small = &crew.page->members[0].report,
                             *large = &crew.page->members[1].report;
    if (!round_of(&crew, s->solo, 1))
        return 1;
    alone[0] = small->rate;
    if (!round_of(&crew, s->solo, 2))
        return 1;
    alone[1] = large->rate;
    if (!round_of(&crew, s->seconds, 3))
        return 1;
    kept[0] = small->rate / alone[0];
    kept[1] = large->rate / alone[1];
    device[0] = small->device_seconds;
    device[1] = large->device_seconds;
    printf("measurement,uids,seconds,small,large,small_share_percent,large_share_percent,"
           "both_of_alone_percent,small_device_seconds_percent,small_per_s,large_per_s\n");
    printf("fair,%d,%.1f,%s,%s,%.1f,%.1f,%.1f,%.1f,%.1f,%.1f\n", s->has_two_uids ? 2 : 1,
           s->seconds, sides[0].shape, sides[1].shape, 100 * kept[0] / (kept[0] + kept[1]),
           100 * kept[1] / (kept[0] + kept[1]), 100 * (kept[0] + kept[1]),
           100 * device[0] / (device[0] + device[1]), small->rate, large->rate);
    return 0;
}

static int beside_flood(struct setting *s, const struct side sides[2])
{
    cleanup(crew_deinit) struct crew crew = CREW_NULL;
    if (!open_crew(&crew, s, sides) || !round_of(&crew, s->solo, 1))
        return 1;
    const struct crew_report *single = &crew.page->members[0].report;
    struct crew_report alone = *single;
    if (!round_of(&crew, s->seconds / 2, 3))
        return 1;
    printf("measurement,uids,single,flood,alone_p50_us,alone_p99_us,p50_us,p99_us,flood_per_s\n");
    printf("fair-flood,%d,%s,%s,%.1f,%.1f,%.1f,%.1f,%.2f\n", s->has_two_uids ? 2 : 1,
           sides[0].shape, sides[1].shape, alone.p50 * 1e6, alone.p99 * 1e6, single->p50 * 1e6,
           single->p99 * 1e6, crew.page->members[1].report.rate);
    return 0;
}

int bench_fair(int argc, char **argv)
{
    if (!bench_options_are_known(argc, argv, OPTIONS))
        return EXIT_USAGE;
    struct setting s = {.socket = bench_option(argc, argv, "--socket", NULL),
                        .seconds = bench_option_number(argc, argv, "--seconds", 10),
                        .solo = bench_option_number(argc, argv, "--solo", 2),
                        .has_two_uids = geteuid() == 0};
    const struct side apart[2] = {
        {bench_option(argc, argv, "--small", "1536x1536x1536"), "128", "16"},
        {bench_option(argc, argv, "--large", "7168x7168x7040"), "8", "1"}};
    const struct side flood[2] = {
        {bench_option(argc, argv, "--single", "256x256x256"), "1", "1"},
        {bench_option(argc, argv, "--flood", "8192x8192x8192"), "4", "1"}};
    gemmd *connection;
    int r = ask_connect(s.socket, &connection);
    if (r)
        return r;
    ask_print_facts(connection);
    gemmd_close(connection);
    if (!s.has_two_uids)
        printf("# not root: both clients have one uid, within which jobs run in their order\n");
    int failed = backlogged(&s, apart);
    failed |= beside_flood(&s, flood);
    return failed;
}
