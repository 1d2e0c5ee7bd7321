/*
 * Compile: the first configuration of each kind that the plan can name, never seen (NVRTC in this
 * process, warm library) and from disk (a new cache object on the same directory, so nothing comes
 * from its memory). NVRTC's own start is a row of its own: a compile child pays it once. --all
 * takes every configuration, --kernels the files of a directory.
 */
#include "bench.h"

#include "../../daemon/jit/cache.h"
#include "../../daemon/jit/nvrtc.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define OPTIONS "arch count configurations all? kernels cpu?"

struct setting {
    struct nvrtc *nvrtc;
    struct sources sources;
    struct compiler_identity identity;
    char directory[64];
    size_t count;
    bool counts_cpu;                 /* time of the CPU in place of time that passes */
    double medians[CONFIG_LIST_MAX]; /* ms, of the configurations so far */
    size_t medians_count;
};

static double now(const struct setting *s)
{
    struct timespec now;
    (void)clock_gettime(s->counts_cpu ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static double compile(struct setting *s, const struct config *config, struct cubin *ret_cubin)
{
    struct nvrtc_result result = {0};
    double start = now(s);
    int r = nvrtc_compile(s->nvrtc, &s->sources, config, &result);
    double seconds = now(s) - start;
    if (r)
        fprintf(stderr, "gemmd-bench: %s\n", result.log ? result.log : "compile failed");
    else
        *ret_cubin = steal(result.cubin, CUBIN_NULL);
    nvrtc_result_deinit(&result);
    return r ? -1 : seconds;
}

static double from_disk(struct setting *s, const struct key *key)
{
    struct cache *cache;
    struct cubin cubin = CUBIN_NULL;
    if (cache_new(&cache, s->directory, CACHE_BYTES_DEFAULT) < 0)
        return -1;
    double start = bench_now();
    int r = cache_get(cache, key, &cubin);
    double seconds = bench_now() - start;
    cubin_deinit(&cubin);
    cache_free(cache);
    return r ? -1 : seconds;
}

static int store(struct setting *s, const struct key *key, const struct cubin *cubin)
{
    struct cache *cache;
    if (cache_new(&cache, s->directory, CACHE_BYTES_DEFAULT) < 0)
        return 1;
    cache_put(cache, key, cubin);
    cache_free(cache);
    return 0;
}

static int row(struct setting *s, const struct config *config)
{
    struct samples compiles = {.count = s->count}, loads = {.count = s->count};
    struct cubin cubin = CUBIN_NULL;
    char text[CONFIG_TEXT_MAX];
    struct key key;
    int r = 0;
    config_to_text(config, text);
    key_compute(&key, &s->sources, config, &s->identity);
    compiles.values = calloc(s->count + 1, sizeof(double));
    loads.values = calloc(s->count + 1, sizeof(double));
    for (size_t i = 0; i < s->count && compiles.values && loads.values && !r; i++) {
        cubin_deinit(&cubin);
        cubin = CUBIN_NULL;
        compiles.values[i] = compile(s, config, &cubin) * 1e3;
        r = compiles.values[i] < 0 || store(s, &key, &cubin);
        if (!r)
            loads.values[i] = from_disk(s, &key) * 1e3;
        r = r || loads.values[i] < 0;
    }
    if (!r) {
        s->medians[s->medians_count++] = samples_median(&compiles);
        printf("compile,%s,%.1f,%.3f,%zu,%u,%u\n", text, samples_median(&compiles),
               samples_median(&loads), cubin.size, cubin.registers, cubin.spill_bytes);
    }
    cubin_deinit(&cubin);
    free(compiles.values);
    free(loads.values);
    return r;
}

static void print_spread(struct setting *s)
{
    struct samples medians = {.values = s->medians, .count = s->medians_count};
    printf("measurement,configurations,p50_ms,p90_ms,max_ms\n");
    printf("compile-spread,%zu,%.1f,%.1f,%.1f\n", medians.count, samples_median(&medians),
           samples_percentile(&medians, 90), samples_percentile(&medians, 100));
}

static void remove_directory(const char *path)
{
    char name[512];
    DIR *directory = opendir(path);
    for (struct dirent *entry; directory && (entry = readdir(directory));) {
        snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
        if (entry->d_type != DT_DIR)
            (void)unlink(name);
    }
    if (directory)
        closedir(directory);
    (void)rmdir(path);
}

int bench_compile(int argc, char **argv)
{
    static struct config configs[CONFIG_LIST_MAX];
    if (!bench_options_are_known(argc, argv, OPTIONS))
        return EXIT_USAGE;
    struct setting s = {.directory = "/tmp/gemmd-bench-XXXXXX",
                        .counts_cpu = bench_flag(argc, argv, "--cpu"),
                        .count = (size_t)bench_option_number(argc, argv, "--count", 5)};
    uint32_t arch = (uint32_t)bench_option_number(argc, argv, "--arch", 90);
    size_t n = config_list(arch, configs);
    struct fault fault = FAULT_NONE;
    double start = bench_now();
    if (n == 0 || s.count == 0) {
        fprintf(
            stderr,
            "gemmd-bench: --arch %u --count %zu: an architecture that has kernels is wanted, and "
            "one compile or more\n",
            arch, s.count);
        return EXIT_USAGE;
    }
    if (!mkdtemp(s.directory)) {
        perror("gemmd-bench: a directory in /tmp");
        return 1;
    }
    int r = nvrtc_new(&s.nvrtc, &fault);
    if (r || sources_open(&s.sources, bench_option(argc, argv, "--kernels", NULL))) {
        fprintf(stderr, "gemmd-bench: %s\n", r ? fault.message : "no kernel files");
        remove_directory(s.directory);
        return r ? EXIT_ABSENT : 1;
    }
    double start_seconds = bench_now() - start;
    nvrtc_identity(s.nvrtc, &s.identity);

    bench_print_facts(NULL, NULL);
    printf("# NVRTC %u.%u build %s, loaded in %.1f ms\n", s.identity.major, s.identity.minor,
           s.identity.build, start_seconds * 1e3);
    if (s.counts_cpu)
        printf("# compile_ms: time of the CPU\n");
    printf("measurement,configuration,compile_ms,disk_ms,bytes,registers,spill_bytes\n");
    /* one of the four transpositions of each, or of as many as asked for, spread over the list */
    size_t wanted = (size_t)bench_option_number(argc, argv, "--configurations", CONFIG_LIST_MAX);
    size_t step = 4 * ((n / 4 + wanted - 1) / MAX(wanted, 1u));
    step = bench_flag(argc, argv, "--all") ? 1 : MAX(step, 4u);
    for (size_t i = 0; i < n && !r; i += step)
        r = row(&s, &configs[i]);
    if (!r)
        print_spread(&s);
    sources_deinit(&s.sources);
    nvrtc_free(s.nvrtc);
    remove_directory(s.directory);
    return r;
}
