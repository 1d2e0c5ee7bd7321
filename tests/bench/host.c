/*
 * Products on host memory: operands in memfds that the daemon maps, copied in and out beside the
 * computation. Held against what bounds them: the copy to the device, the copy back, and the
 * product itself, each measured alone here. A rate near the longest of the three means that they
 * run together; near their sum, one after the other.
 */
#include <stdio.h>

#include "ask.h"
#include "transfer.h"
#include "work.h"

#include <stdlib.h>

#define ROUNDS_MAX 15
#define OPTIONS    "socket device shape dtype layout in-flight rounds seconds"

struct figures {
    double host[ROUNDS_MAX]; /* seconds per product */
    double kernel[ROUNDS_MAX];
    double to_device[ROUNDS_MAX], from_device[ROUNDS_MAX]; /* of the operands, of the result */
    double both[ROUNDS_MAX];                               /* the two at once */
};

static int run_work(struct work *work, struct flow_figures *flow, double seconds, double *ret_each)
{
    struct flow_engine engine = work_engine(work);
    if (flow_run(&engine, work->options.in_flight, seconds, flow))
        return 1;
    *ret_each = flow->seconds / (double)flow->products;
    return 0;
}

/* The sides in alternation; round 0 warms up. */
static int
measure(struct work sides[2], struct transfer *transfer, int argc, char **argv, struct figures *f)
{
    size_t rounds = (size_t)bench_option_number(argc, argv, "--rounds", 3);
    double seconds = bench_option_number(argc, argv, "--seconds", 1);
    size_t in = sides[0].bytes[0] + sides[0].bytes[1], out = sides[0].bytes[2];
    cleanup(flow_figures_deinit) struct flow_figures flow;
    if (flow_figures_init(&flow))
        return 1;
    for (size_t round = 0; round <= rounds; round++) {
        size_t at = round ? round - 1 : 0;
        if (run_work(&sides[0], &flow, seconds, &f->host[at]) ||
            run_work(&sides[1], &flow, seconds / 2, &f->kernel[at]) ||
            transfer_time(transfer, in, true, &f->to_device[at]) ||
            transfer_time(transfer, out, false, &f->from_device[at]) ||
            transfer_time_both(transfer, in, out, &f->both[at]))
            return 1;
    }
    return 0;
}

static double median(double *values, size_t count)
{
    struct samples samples = {values, count};
    return samples_median(&samples);
}

static void print(const struct work *work, struct figures *f, size_t rounds, const char *how)
{
    double host = median(f->host, rounds), kernel = median(f->kernel, rounds);
    double in = median(f->to_device, rounds), out = median(f->from_device, rounds);
    double both = median(f->both, rounds), longest = MAX(kernel, MAX(in, out));
    double bytes_in = (double)(work->bytes[0] + work->bytes[1]), bytes_out = (double)work->bytes[2];
    const struct shape *shape = &work->options.shape;
    printf("# copies alone %s: %.1f GB/s in, %.1f GB/s out; both at once %.1f and %.1f GB/s\n", how,
           bytes_in / in * 1e-9, bytes_out / out * 1e-9, bytes_in / both * 1e-9,
           bytes_out / both * 1e-9);
    printf("measurement,m,n,k,dtype,operand_mib,in_flight,h2d_ms,d2h_ms,kernel_ms,product_ms,"
           "of_longest,of_sum,tflops,in_gbs,out_gbs,both_copies,both_ms,of_bus\n");
    printf("host,%lld,%lld,%lld,%s,%.1f,%zu,%.3f,%.3f,%.3f,%.3f,%.3f,%.3f,%.2f,%.1f,%.1f,%.3f,"
           "%.3f,%.3f\n",
           (long long)shape->m, (long long)shape->n, (long long)shape->k, dtype_name(shape->dtype),
           (double)work->bytes[0] / (1 << 20), work->options.in_flight, in * 1e3, out * 1e3,
           kernel * 1e3, host * 1e3, longest / host, (in + out + kernel) / host,
           shape_flop(shape) / host * 1e-12, bytes_in / host * 1e-9, bytes_out / host * 1e-9,
           MAX(in + out - host, 0) / host, both * 1e3, MAX(kernel, both) / host);
}

int bench_host(int argc, char **argv)
{
    static struct work sides[2]; /* on host memory, on device memory */
    static struct figures figures;
    char uuid[96] = "";
    struct transfer *transfer = NULL;
    if (!bench_options_are_known(argc, argv, OPTIONS))
        return EXIT_USAGE;
    size_t rounds = (size_t)bench_option_number(argc, argv, "--rounds", 3);
    struct work_options options = {
        .socket = bench_option(argc, argv, "--socket", NULL),
        .shape = shape_from_options(argc, argv, "11776x11776x11776"), /* 264 MiB in 16 bits */
        .in_flight = (size_t)bench_option_number(argc, argv, "--in-flight", 3),
        .sets = (size_t)bench_option_number(argc, argv, "--in-flight", 3),
        .memory = GEMMD_HOST,
    };
    if (rounds < 1 || rounds > ROUNDS_MAX || options.in_flight < 1 ||
        options.in_flight > FLOW_IN_FLIGHT_MAX) {
        fprintf(stderr, "gemmd-bench: allowed are --rounds 1 to %d, --in-flight 1 to %d\n",
                ROUNDS_MAX, FLOW_IN_FLIGHT_MAX);
        return EXIT_USAGE;
    }
    int r = work_open(&sides[0], &options);
    options.memory = GEMMD_DEVICE;
    options.sets = 1;
    r = r ? r : work_open(&sides[1], &options);
    if (!r) {
        ask_print_facts(sides[0].connection);
        ask_text(sides[0].connection, "device", "uuid", uuid);
    }
    r = r ? r : work_check(&sides[0]);
    size_t largest = sides[0].bytes[0] + sides[0].bytes[1] + sides[0].bytes[2];
    r = r ? r : transfer_open(&transfer, &sides[1], uuid, largest);
    r = r ? r : measure(sides, transfer, argc, argv, &figures);
    if (!r)
        print(&sides[0], &figures, rounds, transfer_how(transfer));
    transfer_close(transfer);
    work_close(&sides[0]);
    work_close(&sides[1]);
    return r;
}
