#include "bench.h"

#include <stdio.h>
#include <string.h>

static const struct bench_command commands[] = {
    {"latency",
     "[--socket PATH] [--size 256] [--count 20000]\n"
     "      one product at a time on device buffers over the socket: p50, p99",
     bench_latency},
    {"cold",
     "[--socket PATH] [--size 256] [--count 50]\n"
     "      a process from its start to its first result, operands in a 1 MiB memfd, daemon warm",
     bench_cold},
    {"compile",
     "[--arch 90] [--count 5]\n"
     "      a configuration never seen to its cubin, and from disk; needs no GPU",
     bench_compile},
#ifdef BENCH_HAS_CUDA
    {"kernels",
     "[--shapes FILE] [--group NAME] [--device cuda:0] [--warmup 3] [--rounds 5]\n"
     "      device time against the best of all cuBLASLt heuristics; without FILE 4096^3 bf16",
     bench_kernels},
#endif
};

static int usage(FILE *to, int status)
{
    fprintf(to, "usage: gemmd-bench COMMAND [OPTION...]\n\n");
    for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
        fprintf(to, "  %s %s\n", commands[i].name, commands[i].help);
    return status;
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return usage(stderr, EXIT_USAGE);
    if (strcmp(argv[1], "--help") == 0)
        return usage(stdout, 0);
    if (strcmp(argv[1], "cold-client") == 0)
        return bench_cold_client(argc - 1, argv + 1);
    for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
        if (strcmp(argv[1], commands[i].name) == 0)
            return commands[i].run(argc - 1, argv + 1);
    }
    fprintf(stderr, "gemmd-bench: no command \"%s\"\n", argv[1]);
    return usage(stderr, EXIT_USAGE);
}
