/*
 * One process of `share-peer`: what an application without the daemon is, a CUDA context and
 * cuBLASLt of its own. The same loop as a client of the daemon (flow.h): one product and a
 * synchronization, or several under way with an event each.
 */
#include "../../client/reference.h"
#include "crew.h"
#include "flow.h"
#include "peer.h"

#include <stdio.h>
#include <stdlib.h>

#define TRIAL_LAUNCHES        20
#define CHECK_MULTIPLICATIONS ((uint64_t)1 << 27)
#define PLACES_MAX            FLOW_IN_FLIGHT_MAX

struct process {
    struct gpu gpu;
    struct peer peer;
    struct shape shape;
    size_t bytes[3], places[3], sets, in_flight;
    void *host[3];
    CUdeviceptr memory[3];
    struct peer_buffers buffers[PLACES_MAX];
    CUevent events[FLOW_IN_FLIGHT_MAX];
    __typeof__(cuEventRecord) *record;
    __typeof__(cuEventSynchronize) *synchronize;
    uint64_t next;
};

static int allocate(struct process *p)
{
    __typeof__(cuMemAlloc) *take = GPU_CALL(&p->gpu, MemAlloc);
    __typeof__(cuMemcpyHtoD) *copy = GPU_CALL(&p->gpu, MemcpyHtoD);
    for (int i = 0; i < 3; i++) {
        p->host[i] = malloc(p->bytes[i]);
        if (!p->host[i] || take(&p->memory[i], p->bytes[i] * p->places[i]))
            return 1;
    }
    for (int i = 0; i < 2; i++) {
        bench_fill(p->shape.dtype, p->host[i], p->bytes[i] / dtype_size(p->shape.dtype),
                   (uint64_t)i + 1);
        for (size_t place = 0; place < p->places[i]; place++) {
            if (copy(p->memory[i] + place * p->bytes[i], p->host[i], p->bytes[i]))
                return 1;
        }
    }
    p->sets = MAX(p->places[0], p->places[2]);
    for (size_t i = 0; i < p->sets; i++)
        p->buffers[i] = (struct peer_buffers){.a = p->memory[0] + i % p->places[0] * p->bytes[0],
                                              .b = p->memory[1] + i % p->places[1] * p->bytes[1],
                                              .d = p->memory[2] + i % p->places[2] * p->bytes[2]};
    return 0;
}

static int make_events(struct process *p)
{
    __typeof__(cuEventCreate) *create = GPU_CALL(&p->gpu, EventCreate);
    p->record = GPU_CALL(&p->gpu, EventRecord);
    p->synchronize = GPU_CALL(&p->gpu, EventSynchronize);
    for (size_t i = 0; i < p->in_flight; i++) {
        if (create(&p->events[i], CU_EVENT_DISABLE_TIMING))
            return 1;
    }
    return 0;
}

static int synchronize(struct process *p)
{
    return (int)cu(&p->gpu.driver)->StreamSynchronize(p->gpu.stream);
}

/* --- the loop's engine ----------------------------------------------------------------------- */

static int start(void *context, size_t slot)
{
    struct process *p = context;
    int r = peer_launch(&p->peer, p->gpu.stream, (size_t)(p->next++ % p->sets));
    if (!r && p->in_flight > 1)
        r = (int)p->record(p->events[slot], p->gpu.stream);
    return r;
}

static int finish(void *context, size_t slot, double *ret_device_seconds)
{
    struct process *p = context;
    *ret_device_seconds = 0;
    return p->in_flight > 1 ? (int)p->synchronize(p->events[slot]) : synchronize(p);
}

/* --- which algorithm ------------------------------------------------------------------------- */

static double trial(struct process *p)
{
    double begin;
    if (peer_launch(&p->peer, p->gpu.stream, 0) || synchronize(p))
        return -1;
    begin = bench_now();
    for (size_t i = 0; i < TRIAL_LAUNCHES; i++) {
        if (peer_launch(&p->peer, p->gpu.stream, i % p->sets))
            return -1;
    }
    return synchronize(p) ? -1 : bench_now() - begin;
}

/* Alone on the device: the others wait for the decision. */
static size_t fastest(struct process *p)
{
    size_t best = 0;
    double best_seconds = 0;
    for (size_t i = 0; i < p->peer.count; i++) {
        p->peer.chosen = i;
        double seconds = trial(p);
        if (seconds > 0 && (best_seconds <= 0 || seconds < best_seconds)) {
            best_seconds = seconds;
            best = i;
        }
    }
    return best;
}

static bool is_right(struct process *p)
{
    struct problem problem = shape_problem(&p->shape);
    struct reference_operands operands = {.a = p->host[0], .b = p->host[1], .d = p->host[2]};
    struct reference_report report;
    if (peer_launch(&p->peer, p->gpu.stream, 0) || synchronize(p) ||
        GPU_CALL(&p->gpu, MemcpyDtoH)(p->host[2], p->buffers[0].d, p->bytes[2]) ||
        reference_check(&problem, &operands, CHECK_MULTIPLICATIONS, &report) < 0)
        return false;
    return reference_is_right(&report);
}

static int choose(struct process *p, struct crew_page *page, size_t index)
{
    if (index == 0) {
        p->peer.chosen = fastest(p);
        if (!is_right(p))
            return crew_fail(page, "cuBLASLt's product is wrong");
        crew_decide(page, (uint32_t)p->peer.chosen + 1);
    }
    p->peer.chosen = (size_t)crew_decision(page) - 1;
    if (p->peer.chosen >= p->peer.count) /* the crew is at its end */
        return 1;
    for (int i = 0; i < 2; i++) /* its kernel is loaded by the first launch */
        if (peer_launch(&p->peer, p->gpu.stream, 0))
            return 1;
    return synchronize(p);
}

/* --- the process ----------------------------------------------------------------------------- */

static int prepare(struct process *p, struct crew_page *page, size_t index, const char *device)
{
    struct fault fault = FAULT_NONE;
    const char *why = "";
    if (gpu_open(&p->gpu, device, &fault))
        return crew_fail(page, "%.180s", fault.message);
    if (!peer_open(&p->peer, &p->gpu, &why))
        return crew_fail(page, "%s", why);
    if (allocate(p) || make_events(p))
        return crew_fail(page, "no device memory for the operands");
    if (!peer_begin(&p->peer, &p->shape, p->buffers))
        return crew_fail(page, "cuBLASLt has nothing for this product");
    if (peer_launch(&p->peer, p->gpu.stream, 0) || synchronize(p))
        return crew_fail(page, "cuBLASLt's first product failed");
    page->members[index].first_result = bench_now();
    for (int i = 0; i < 3; i++)
        page->members[index].device_bytes += p->bytes[i] * p->places[i];
    if (choose(p, page, index))
        return crew_fail(page, "cuBLASLt's product failed");
    return 0;
}

static int rounds(struct process *p, struct crew_page *page, size_t index)
{
    struct flow_engine engine = {.context = p, .start = start, .finish = finish, .now = bench_now};
    cleanup(flow_figures_deinit) struct flow_figures figures;
    double seconds;
    if (flow_figures_init(&figures))
        return crew_fail(page, "no memory");
    while ((seconds = crew_wait(page, index)) > 0) {
        if (flow_run(&engine, p->in_flight, seconds, &figures))
            return crew_fail(page, "process %zu: a product failed", index);
        page->members[index].report = (struct crew_report){
            .p50 = samples_percentile(&figures.latencies, 50),
            .p99 = samples_percentile(&figures.latencies, 99),
            .rate = (double)figures.products / figures.seconds,
        };
    }
    return 0;
}

int bench_peer_member(int argc, char **argv)
{
    static struct process process;
    struct process *p = &process;
    size_t index = (size_t)bench_option_number(argc, argv, "--member", 0);
    size_t sets = (size_t)bench_option_number(argc, argv, "--sets", 1);
    struct crew_page *page = crew_join();
    if (!page || index >= CREW_MAX)
        return EXIT_USAGE;
    p->shape = shape_from_options(argc, argv, "256x256x256");
    p->in_flight = (size_t)bench_option_number(argc, argv, "--in-flight", 1);
    shape_bytes(&p->shape, p->bytes);
    p->places[0] = p->places[1] = MIN(MAX(sets, 1u), PLACES_MAX);
    p->places[2] = MAX(p->places[0], p->in_flight);
    if (prepare(p, page, index, bench_option(argc, argv, "--device", "cuda")))
        return 1;
    return rounds(p, page, index); /* the context ends with the process */
}
