#include "compile_all.h"

#include <pthread.h>
#include <unistd.h>

#define THREADS_MAX 16 /* a compile takes some 100 MiB */

struct pool {
    struct nvrtc *nvrtc;
    struct sources sources;
    struct compiled *compiled;
    size_t count, next; /* next: atomic */
};

static void *work(void *context)
{
    struct pool *pool = context;
    for (;;) {
        size_t i = __atomic_fetch_add(&pool->next, 1, __ATOMIC_RELAXED);
        if (i >= pool->count)
            return NULL;
        struct compiled *one = &pool->compiled[i];
        one->r = nvrtc_compile(pool->nvrtc, &pool->sources, &one->config, &one->result);
    }
}

static void run(struct pool *pool)
{
    pthread_t threads[THREADS_MAX];
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    long wanted = MIN(MAX(processors, 1), THREADS_MAX), started = 0;
    while (started < wanted && pthread_create(&threads[started], NULL, work, pool) == 0)
        started++;
    if (started == 0)
        work(pool);
    for (long i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
}

int compile_all(struct compiled *compiled, size_t count, struct fault *ret_fault)
{
    struct pool pool = {.compiled = compiled, .count = count};
    int r = sources_open(&pool.sources, NULL);
    if (r) {
        fault_set(ret_fault, STATUS_INTERNAL, "", "no embedded kernels: %d", r);
        return r;
    }
    r = nvrtc_new(&pool.nvrtc, ret_fault);
    if (!r) {
        run(&pool);
        nvrtc_free(pool.nvrtc);
    }
    sources_deinit(&pool.sources);
    return r;
}
