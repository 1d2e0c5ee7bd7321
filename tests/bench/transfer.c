#include <stdio.h>

#include "transfer.h"
#include "work.h"

#include <stdlib.h>
#include <sys/mman.h>

#define TIMES 3

struct transfer {
    struct work *work;
    struct copier *copier;
    void *memory;
    size_t bytes;
    gemmd_buffer *host, *device; /* without a copier */
};

int transfer_open(struct transfer **ret, struct work *work, const char *uuid, size_t bytes_max)
{
    struct transfer *t = calloc(1, sizeof(*t));
    *ret = t;
    if (!t)
        return 1;
    *t = (struct transfer){.work = work, .bytes = bytes_max};
    t->memory = mmap(NULL, bytes_max, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (t->memory == MAP_FAILED)
        return 1;
#ifdef BENCH_HAS_CUDA
    t->copier = uuid[0] ? copier_open(uuid, t->memory, bytes_max) : NULL;
#else
    (void)uuid;
#endif
    if (!t->copier &&
        (gemmd_buffer_create(work->connection, GEMMD_HOST, bytes_max, NULL, 0, &t->host) ||
         gemmd_buffer_create(work->connection, GEMMD_DEVICE, bytes_max, NULL, 0, &t->device)))
        return bench_client_failed(work->connection, "creating a buffer");
    return 0;
}

void transfer_close(struct transfer *t)
{
    if (!t)
        return;
#ifdef BENCH_HAS_CUDA
    if (t->copier)
        copier_close(t->copier);
#endif
    gemmd_buffer_free(t->host);
    gemmd_buffer_free(t->device);
    if (t->memory && t->memory != MAP_FAILED)
        (void)munmap(t->memory, t->bytes);
    free(t);
}

static int through_daemon(struct transfer *t, size_t bytes, bool to_device)
{
    gemmd_buffer *from = to_device ? t->host : t->device, *to = to_device ? t->device : t->host;
    for (int i = 0; i < TIMES; i++) {
        if (gemmd_buffer_copy(to, 0, from, 0, bytes))
            return bench_client_failed(t->work->connection, "copying");
    }
    return 0;
}

int transfer_time(struct transfer *t, size_t bytes, bool to_device, double *ret_seconds)
{
    double begin = bench_now();
    int r;
#ifdef BENCH_HAS_CUDA
    r = t->copier ? copier_copy(t->copier, bytes, to_device, TIMES)
                  : through_daemon(t, bytes, to_device);
#else
    r = through_daemon(t, bytes, to_device);
#endif
    *ret_seconds = (bench_now() - begin) / TIMES;
    return r;
}

int transfer_time_both(struct transfer *t, size_t in, size_t out, double *ret_seconds)
{
    double begin = bench_now();
    int r;
#ifdef BENCH_HAS_CUDA
    if (t->copier) {
        r = copier_copy_both(t->copier, in, out, TIMES);
        *ret_seconds = (bench_now() - begin) / TIMES;
        return r;
    }
#endif
    r = through_daemon(t, in, true) || through_daemon(t, out, false);
    *ret_seconds = (bench_now() - begin) / TIMES;
    return r;
}

const char *transfer_how(const struct transfer *t)
{
    return t->copier ? "in a context of this process" : "through the daemon";
}
