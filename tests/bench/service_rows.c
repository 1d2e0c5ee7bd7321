#include "service_rows.h"

#include <math.h>
#include <string.h>

/* In the order of their worth: what the total time cuts off stands last. Brief ones show that each
 * part runs, on any device. */
const struct service_command service_commands[PART_COUNT] = {
    [PART_LATENCY] = {"latency", 20, "latency --count 20000",
                      "latency --count 50 --size 64 --warmup 0.1", true, false},
    [PART_SHARE_ONE] = {"one process, 256^3", 40,
                        "share --procs 1 --shape 256x256x256 --seconds 1 --rounds 3",
                        "share --procs 1 --shape 64x64x64 --seconds 0.1 --rounds 1", true, true},
    [PART_COLD] = {"cold", 20, "cold --count 50", "cold --count 3 --size 64", true, false},
    [PART_SHARE] = {"16 processes, 4096^3", 80,
                    "share --procs 16 --shape 4096x4096x4096 --seconds 1.5 --rounds 3",
                    "share --procs 2 --shape 96x96x96 --seconds 0.1 --rounds 1", true, true},
    [PART_HOST] = {"host memory", 45, "host --shape 11776x11776x11776 --seconds 1 --rounds 3",
                   "host --shape 200x200x200 --seconds 0.1 --rounds 1", true, false},
    [PART_COMPILE] = {"compile", 45, "compile --count 3 --configurations 12",
                      "compile --count 1 --configurations 1", false, false},
    [PART_FAULT] = {"fault", 60, "fault --repeat 5 --hung 1 --inject 2 --endless 0",
                    "fault --repeat 2 --hung 0 --inject 1 --endless 0 --size 64", true, false},
    [PART_IDLE] = {"idle", 50, "idle --seconds 10", "idle --seconds 1 --settle 1", true, false},
    [PART_FAIR] = {"fair", 45, "fair --seconds 10 --solo 1.5",
                   "fair --seconds 0.4 --solo 0.2 --small 32x32x32 --large 128x128x200 --single "
                   "32x32x32 --flood 128x128x200",
                   true, false},
    [PART_SHARE_SMALL] = {"16 processes, 256^3", 60,
                          "share --procs 16 --shape 256x256x256 --seconds 0.7 --rounds 3",
                          "share --procs 2 --shape 64x64x64 --seconds 0.1 --rounds 1", true, true},
    [PART_SHARE_SMALL_DEEP] = {"16 processes, 256^3, 32 in flight", 60,
                               "share --procs 16 --shape 256x256x256 --in-flight 32 --batch 16 "
                               "--seconds 0.7 --rounds 3",
                               "share --procs 2 --shape 64x64x64 --in-flight 8 --batch 4 "
                               "--seconds 0.1 --rounds 1",
                               true, true},
    [PART_SHARE_MIDDLE] = {"16 processes, 1024^3", 60,
                           "share --procs 16 --shape 1024x1024x1024 --seconds 0.7 --rounds 3",
                           "share --procs 2 --shape 64x64x64 --seconds 0.1 --rounds 1", true, true},
    [PART_PEER_MIDDLE] = {"4 processes of the peer, 1024^3", 40,
                          "share --procs 4 --shape 1024x1024x1024 --seconds 0.7 --rounds 3",
                          "share --procs 2 --shape 64x64x64 --seconds 0.1 --rounds 1", true, true},
};

struct source {
    enum service_part part;
    const char *measurement, *column; /* NULL: none */
};

struct row_source {
    const char *name, *unit;
    struct source peer, ours;
    enum goal_kind kind;
    double goal, goal_high;
    bool is_later;
};

#define NO_PEER                                                                                    \
    {                                                                                              \
        0, NULL, NULL                                                                              \
    }

/* The goals of the project's service table. */
static const struct row_source sources[] = {
    {"first light: 256^3 bf16 on device buffers, p50",
     "us",
     {PART_SHARE_ONE, "share-sliced", "worst_p50_us"},
     {PART_LATENCY, "latency", "p50_us"},
     GOAL_AT_MOST,
     40,
     0,
     false},
    {"device memory per further client (peer: process)",
     "MiB",
     {PART_SHARE_ONE, "share-sliced", "device_mib_per_process"},
     {PART_IDLE, "idle", "device_mib_per_client"},
     GOAL_AT_MOST,
     0,
     0,
     false},
    {"cold process to its first result, daemon warm, p50",
     "ms",
     {PART_SHARE_ONE, "share-sliced", "first_result_ms"},
     {PART_COLD, "cold", "p50_ms"},
     GOAL_AT_MOST,
     2,
     0,
     false},
    {"16 clients 4096^3, aggregate (peer: MPS)",
     "TFLOP/s",
     {PART_SHARE, "share-mps", "tflops"},
     {PART_SHARE, "share", "tflops"},
     GOAL_AT_LEAST_PEER,
     1,
     0,
     false},
    {"16 clients 4096^3, aggregate (peer: time-sliced)",
     "TFLOP/s",
     {PART_SHARE, "share-sliced", "tflops"},
     {PART_SHARE, "share", "tflops"},
     GOAL_AT_LEAST_PEER,
     1,
     0,
     false},
    {"host memory: of max(H2D, D2H, kernel)",
     "",
     NO_PEER,
     {PART_HOST, "host", "of_longest"},
     GOAL_AT_LEAST,
     0.95,
     0,
     false},
    {"configuration never seen, to its cubin (slowest)",
     "ms",
     NO_PEER,
     {PART_COMPILE, "compile", "compile_ms"},
     GOAL_AT_MOST,
     450,
     0,
     false},
    {"configuration from disk (slowest)",
     "ms",
     NO_PEER,
     {PART_COMPILE, "compile", "disk_ms"},
     GOAL_AT_MOST,
     3,
     0,
     false},
    {"worker fault (address, alignment, trap) to next answer",
     "s",
     NO_PEER,
     {PART_FAULT, "fault-device", "median_s"},
     GOAL_AT_MOST,
     0.5,
     0,
     false},
    {"worker killed, last good answer to next",
     "s",
     NO_PEER,
     {PART_FAULT, "fault-killed", "median_s"},
     GOAL_AT_MOST,
     1,
     0,
     false},
    {"worker hung, last good answer to next",
     "s",
     NO_PEER,
     {PART_FAULT, "fault-hung", "median_s"},
     GOAL_AT_MOST,
     1,
     0,
     false},
    {"wrong results among these",
     "",
     NO_PEER,
     {PART_FAULT, "fault-killed", "wrong"},
     GOAL_AT_MOST,
     0,
     0,
     false},
    {"idle: context switches of all processes in 10 s",
     "",
     NO_PEER,
     {PART_IDLE, "idle", "switches"},
     GOAL_AT_MOST,
     0,
     0,
     false},
    {"idle: front RSS",
     "MiB",
     NO_PEER,
     {PART_IDLE, "idle", "front_rss_mib"},
     GOAL_AT_MOST,
     20,
     0,
     false},
    {"equal weights, sizes 100x apart: share of the small",
     "%",
     NO_PEER,
     {PART_FAIR, "fair", "small_share_percent"},
     GOAL_WITHIN,
     45,
     55,
     false},
    {"one-at-a-time 256^3 beside an 8192^3 flood, p99",
     "us",
     NO_PEER,
     {PART_FAIR, "fair-flood", "p99_us"},
     GOAL_AT_MOST,
     500,
     0,
     false},
    {"256^3, one client, p50 (peer: in process)",
     "us",
     {PART_SHARE_ONE, "share-sliced", "worst_p50_us"},
     {PART_LATENCY, "latency", "p50_us"},
     GOAL_AT_MOST_PEER,
     0.95,
     0,
     true},
    {"16 clients 256^3, worst p50 (peer: MPS)",
     "us",
     {PART_SHARE_SMALL, "share-mps", "worst_p50_us"},
     {PART_SHARE_SMALL, "share", "worst_p50_us"},
     GOAL_AT_MOST_PEER,
     0.5,
     0,
     true},
    {"16 clients 256^3, 32 in flight, aggregate (peer: MPS)",
     "1/s",
     {PART_SHARE_SMALL_DEEP, "share-mps", "products_per_s"},
     {PART_SHARE_SMALL_DEEP, "share", "products_per_s"},
     GOAL_AT_LEAST_PEER,
     2,
     0,
     true},
    {"16 clients 1024^3, aggregate (peer: MPS, 4 processes)",
     "TFLOP/s",
     {PART_PEER_MIDDLE, "share-mps", "tflops"},
     {PART_SHARE_MIDDLE, "share", "tflops"},
     GOAL_AT_LEAST_PEER,
     1.8,
     0,
     true},
};

_Static_assert(ARRAY_SIZE(sources) <= SERVICE_ROWS_MAX, "a row for each");

static double value_of(const struct figures figures[PART_COUNT], const struct source *source)
{
    if (!source->measurement)
        return NAN;
    return figures_find(&figures[source->part], source->measurement, source->column);
}

size_t service_rows(const struct figures figures[PART_COUNT],
                    struct table_row ret_rows[SERVICE_ROWS_MAX])
{
    for (size_t i = 0; i < ARRAY_SIZE(sources); i++) {
        const struct row_source *s = &sources[i];
        ret_rows[i] = (struct table_row){.name = s->name,
                                         .unit = s->unit,
                                         .peer = value_of(figures, &s->peer),
                                         .ours = value_of(figures, &s->ours),
                                         .kind = s->kind,
                                         .goal = s->goal,
                                         .goal_high = s->goal_high,
                                         .is_later = s->is_later};
    }
    return ARRAY_SIZE(sources);
}

static bool is_of(const struct figure *figure, const char *measurement)
{
    size_t length = strlen(measurement);
    const char *rest = figure->measurement + length;
    return strncmp(figure->measurement, measurement, length) == 0 &&
           (*rest == '\0' || strcmp(rest, "-stages") == 0);
}

void service_print_stages(FILE *to,
                          const struct figures figures[PART_COUNT],
                          const struct table_row *rows,
                          size_t count)
{
    bool is_first = true;
    for (size_t i = 0; i < count; i++) {
        const struct source *ours = &sources[i].ours;
        if (table_judge(&rows[i]) != TABLE_MISSED || rows[i].is_later)
            continue;
        fprintf(to, "%s  %s:", is_first ? "\nwhat stands behind the missed ones\n" : "",
                rows[i].name);
        is_first = false;
        for (size_t j = 0; j < figures[ours->part].count; j++) {
            const struct figure *figure = &figures[ours->part].items[j];
            if (is_of(figure, ours->measurement))
                fprintf(to, " %s %.4g", figure->column, figure->value);
        }
        fprintf(to, "\n");
    }
}
