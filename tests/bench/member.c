/*
 * One client process of `share` and `fair`: waits with its crew, runs a round, reports.
 */
#include <stdio.h>

#include "crew.h"
#include "work.h"

#include <grp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

/* After exec, not before: the uid need not be able to read this binary. */
static int become(unsigned uid)
{
    if (uid == 0)
        return 0;
    if (setgroups(0, NULL) || setresgid(uid, uid, uid) || setresuid(uid, uid, uid))
        return -1;
    return prctl(PR_SET_PDEATHSIG, SIGKILL); /* a new uid takes it away */
}

static int rounds(struct crew_page *page, size_t index, struct work *work)
{
    struct crew_member *member = &page->members[index];
    struct flow_engine engine = work_engine(work);
    cleanup(flow_figures_deinit) struct flow_figures figures;
    double seconds;
    if (flow_figures_init(&figures))
        return crew_fail(page, "no memory");
    while ((seconds = crew_wait(page, index)) > 0) {
        if (flow_run(&engine, work->options.in_flight, seconds, &figures))
            return crew_fail(page, "client %zu: %.160s", index,
                             gemmd_last_error(work->connection)->message);
        member->report = (struct crew_report){
            .p50 = samples_percentile(&figures.latencies, 50),
            .p99 = samples_percentile(&figures.latencies, 99),
            .rate = (double)figures.products / figures.seconds,
            .device_seconds = figures.device_seconds,
        };
    }
    return 0;
}

int bench_member(int argc, char **argv)
{
    size_t index = (size_t)bench_option_number(argc, argv, "--member", 0);
    struct crew_page *page = crew_join();
    struct work work = {0};
    struct work_options options = {
        .socket = bench_option(argc, argv, "--socket", NULL),
        .shape = shape_from_options(argc, argv, "256x256x256"),
        .sets = (size_t)bench_option_number(argc, argv, "--sets", 1),
        .in_flight = (size_t)bench_option_number(argc, argv, "--in-flight", 1),
        .batch = (size_t)bench_option_number(argc, argv, "--batch", 1),
        .memory = GEMMD_DEVICE,
    };
    if (!page || index >= CREW_MAX || options.batch > GEMMD_SUBMIT_MANY_MAX)
        return EXIT_USAGE;
    if (become((unsigned)bench_option_number(argc, argv, "--uid", 0)))
        return crew_fail(page, "cannot become another uid: %m");
    int r = work_open(&work, &options);
    if (r)
        r = crew_fail(page, "client %zu: %.160s", index,
                      work.connection ? gemmd_last_error(work.connection)->message : "no daemon");
    /* One check is enough for the configuration; the others would only delay the start. But each
     * may have another shape than the first, whose compilation is not to fall into a round. */
    if (!r && (index == 0 ? work_check(&work) : work_warm(&work)))
        r = crew_fail(page, "client %zu: a wrong or failed product", index);
    r = r ? r : rounds(page, index, &work);
    work_close(&work);
    return r;
}

int bench_no_peer_member(int argc, char **argv)
{
    struct crew_page *page = crew_join();
    (void)argc;
    (void)argv;
    return page ? crew_fail(page, "this program was built without CUDA's header") : EXIT_USAGE;
}
