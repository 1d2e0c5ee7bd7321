#include "bench.h"

#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

static const struct bench_command commands[] = {
    {"latency",
     "[--socket PATH] [--size 256] [--count 20000] [--warmup 1]\n"
     "      one product at a time on device buffers over the socket: p50, p99",
     bench_latency},
    {"cold",
     "[--socket PATH] [--size 256] [--count 50]\n"
     "      a process from its start to its first result, operands in a 1 MiB memfd, daemon warm",
     bench_cold},
    {"compile",
     "[--arch 90] [--count 5] [--configurations N | --all] [--kernels DIR] [--cpu]\n"
     "      a configuration never seen to its cubin, and from disk; needs no GPU",
     bench_compile},
    {"share",
     "[--procs 16] [--shape MxNxK] [--dtype bf16] [--layout nt] [--in-flight 1] [--batch 1]\n"
     "        [--seconds 2] [--rounds 3] [--alone] [--mps DIR|none] [--device cuda] [--socket "
     "PATH]\n"
     "      processes through the daemon, and beside them the same with cuBLASLt of their own:\n"
     "      time-sliced, and under an MPS of our own where it can be started",
     bench_share},
    {"share-peer",
     "[the same]\n"
     "      the peers alone",
     bench_share_peer},
    {"idle",
     "[--socket PATH] [--seconds 10] [--settle 3]\n"
     "      context switches of every process of a daemon that nobody asks, memory of the front,\n"
     "      device memory per client",
     bench_idle},
    {"fault",
     "[--socket PATH] [--size 256] [--repeat 5] [--hung 1] [--inject 3]\n        [--endless 1] "
     "[--timeout 20]\n"
     "      the worker is killed, then stopped, under load; in a daemon of its own a product "
     "faults "
     "the\n"
     "      device: last good answer to next, errors, wrong results",
     bench_fault},
    {"fair",
     "[--socket PATH] [--seconds 10] [--solo 2] [--small MxNxK] [--large MxNxK]\n"
     "        [--single MxNxK] [--flood MxNxK]\n"
     "      two backlogged clients with products 100 times apart; a small one beside a flood",
     bench_fair},
    {"host",
     "[--socket PATH] [--shape MxNxK] [--dtype bf16] [--layout nt] [--in-flight 3]\n"
     "        [--rounds 3] [--seconds 1]\n"
     "      products on host memory against the longest of copy in, copy out and kernel",
     bench_host},
    {"soak",
     "[--device cpu] [--seconds 60] [--clients 16] [--kill-client-ms 100]\n"
     "        [--fault-worker-s 10] [--warmup 4] [--seed 1] [--daemon PATH]\n"
     "      clients of mixed products, one of them killed every moment, the worker killed, stopped "
     "or\n"
     "      faulted: every result judged, and what the daemon holds at the end against the start",
     bench_soak},
    {"service",
     "[--daemon PATH] [--device auto] [--peer-device cuda] [--output DIR] [--brief]\n"
     "      all of these over a daemon of its own, and the service table; at most 5 minutes",
     bench_service},
#ifdef BENCH_HAS_CUDA
    {"kernels",
     "[--shapes FILE [--group NAME] [--later]] [--random N [--seed 1] [--mixed]]\n"
     "        [--shape MxNxK] [--dtype bf16] [--layout nt] [--peer cublaslt|none] [--candidates "
     "4]\n"
     "        [--config TEXT] [--kernels DIR] [--device cuda:0] [--warmup 3] [--settle 0.4]\n"
     "        [--rounds 5] [--round 0.08] [--trial 0.02] [--unchecked] [--goals FILE] [--trials "
     "FILE]\n"
     "        [--summary FILE]\n"
     "      device time of the plan's choice against the best of all cuBLASLt heuristics, and of "
     "the\n"
     "      plan's best few; with TEXT a row for each configuration whose name contains it; with\n"
     "      --summary the verdict on the rows of an earlier run, without a GPU",
     bench_kernels},
    {"ladder",
     "[--shape MxNxK] [--trace FILE] [--kernels DIR] [--device cuda:0] [--peer cublaslt|none]\n"
     "        [--warmup 3] [--settle 0.4] [--rounds 5] [--round 0.08]\n"
     "      the steps of the hopper ladder side by side, bf16 nt, and what stamps in an "
     "instrumented\n"
     "      build of each say: the tensor cores' idle share, copies under way, gaps between "
     "products;\n"
     "      with FILE the stamps of each step's first CTAs as a trace for Chrome or Perfetto",
     bench_ladder},
#endif
};

static int usage(FILE *to, int status)
{
    fprintf(to, "usage: gemmd-bench COMMAND [OPTION...]\n"
                "       gemmd-bench COMMAND --help\n\n");
    for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
        fprintf(to, "  %s %s\n", commands[i].name, commands[i].help);
    return status;
}

/* Processes that commands start. */
static const struct bench_command members[] = {
    {"member", "", bench_member},
    {"soak-client", "", bench_soak_client},
#ifdef BENCH_HAS_CUDA
    {"peer-member", "", bench_peer_member},
#else
    {"peer-member", "", bench_no_peer_member},
#endif
};

static const struct bench_command *
find(const struct bench_command *list, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(list[i].name, name) == 0)
            return &list[i];
    }
    return NULL;
}

int main(int argc, char **argv)
{
    /* Members are started as /proc/self/exe, and would have that name in ps and in the driver's
     * log.
     */
    (void)prctl(PR_SET_NAME, "gemmd-bench");
    if (argc < 2)
        return usage(stderr, EXIT_USAGE);
    if (strcmp(argv[1], "--help") == 0)
        return usage(stdout, 0);
    const struct bench_command *command = find(commands, ARRAY_SIZE(commands), argv[1]);
    if (command && argc == 3 && strcmp(argv[2], "--help") == 0) {
        printf("usage: gemmd-bench %s %s\n", command->name, command->help);
        return 0;
    }
    if (!command)
        command = find(members, ARRAY_SIZE(members), argv[1]);
    if (command)
        return command->run(argc - 1, argv + 1);
    fprintf(stderr, "gemmd-bench: no command \"%s\"\n", argv[1]);
    return usage(stderr, EXIT_USAGE);
}
