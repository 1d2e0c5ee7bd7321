/*
 * gemmd-bench: what its commands share. Lines that begin with '#' are for people, the others are
 * CSV. Every command first prints the facts that a figure is worthless without.
 */
#pragma once

#include "../../daemon/core/dtype.h"
#include "../../daemon/core/std.h"

#define EXIT_USAGE     2
#define EXIT_NO_DAEMON 3
#define EXIT_ABSENT    4 /* what the command measures is not on this machine */

struct bench_command {
    const char *name;
    const char *help;
    int (*run)(int argc, char **argv); /* argv[0] is the command's name */
};

int bench_latency(int argc, char **argv);
int bench_cold(int argc, char **argv);
int bench_compile(int argc, char **argv);
int bench_kernels(int argc, char **argv);
int bench_ladder(int argc, char **argv);
int bench_share(int argc, char **argv);
int bench_share_peer(int argc, char **argv);
int bench_member(int argc, char **argv);         /* one client of share, fair */
int bench_peer_member(int argc, char **argv);    /* one process of share-peer */
int bench_no_peer_member(int argc, char **argv); /* the same without cuda.h: says so */
int bench_idle(int argc, char **argv);
int bench_fault(int argc, char **argv);
int bench_fair(int argc, char **argv);
int bench_host(int argc, char **argv);
int bench_soak(int argc, char **argv);
int bench_soak_client(int argc, char **argv); /* one of its processes */
int bench_service(int argc, char **argv);

/* Commit, date, host, device and driver as far as they are known; NULL for what is not. */
void bench_print_facts(const char *device, const char *driver);

/* The value of `--name VALUE` in argv; `fallback` when absent. */
const char *bench_option(int argc, char **argv, const char *name, const char *fallback);
double bench_option_number(int argc, char **argv, const char *name, double fallback);
/* Whether all of argv is `--name VALUE` with names of this list ("socket shape ..."); "name?" is
 * one without a value. Else a line on stderr says which is not. */
bool bench_options_are_known(int argc, char **argv, const char *names);
bool bench_flag(int argc, char **argv, const char *name);

double bench_now(void); /* seconds, CLOCK_MONOTONIC */

/* Times, sorted in place by the first call. */
struct samples {
    double *values;
    size_t count;
};

double samples_percentile(struct samples *samples, double percent);
double samples_median(struct samples *samples);

/* `count` elements, uniform in [-1, 1] (int8: its whole range); the same for the same seed. */
void bench_fill(enum dtype dtype, void *memory, size_t count, uint64_t seed);
