/*
 * gemmd-cold-client SOCKET SIZE: one product of that size on operands in a memfd of 1 MiB, in a
 * process that has done nothing before. `gemmd-bench cold` starts it and reads its stamps.
 */
#include "../../client/gemmd.h"
#include "cold_stamps.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define MEMORY_SIZE (1u << 20)
#define MATRIX_MAX  409 /* three such matrices of 16 bits fit */

static double now(void)
{
    struct timespec time;
    (void)clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static int failed(const gemmd_error *error, const char *what)
{
    fprintf(stderr, "gemmd-cold-client: %s: %s %s %s\n", what, gemmd_strerror(error->status),
            error->argument, error->message);
    return 1;
}

/* Filling is the application's time, not ours: one memset. */
static int make_memory(size_t filled)
{
    int fd = memfd_create("operands", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || ftruncate(fd, MEMORY_SIZE) < 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) < 0)
        return -1;
    void *memory = mmap(NULL, MEMORY_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        return -1;
    memset(memory, 0x3c, filled);
    return fd;
}

static int multiply(gemmd *connection, gemmd_buffer *buffer, int64_t size, gemmd_result *ret)
{
    uint64_t bytes = (uint64_t)(size * size) * 2;
    gemmd_product product = GEMMD_PRODUCT_INIT;
    product.input = GEMMD_BF16;
    product.trans_b = true;
    product.m = product.n = product.k = size;
    product.a.buffer = product.b.buffer = product.d.buffer = buffer;
    product.b.offset = bytes;
    product.d.offset = 2 * bytes;
    return gemmd_gemm(connection, &product, ret);
}

int main(int argc, char **argv)
{
    struct cold_stamps stamps = {.over[COLD_START] = now()};
    gemmd_result result = {.size = sizeof(result)};
    const char *socket = argc == 3 && argv[1][0] ? argv[1] : NULL;
    int64_t size = argc == 3 ? atoll(argv[2]) : 0;
    gemmd *connection;
    gemmd_buffer *buffer;
    gemmd_error error;

    if (size < 1 || size > MATRIX_MAX)
        return 2;
    int fd = make_memory((size_t)(size * size) * 4);
    if (fd < 0)
        return 1;
    stamps.over[COLD_MEMORY] = now();
    if (gemmd_connect(socket, &connection, &error))
        return failed(&error, "connecting");
    stamps.over[COLD_CONNECT] = now();
    if (gemmd_buffer_register(connection, fd, MEMORY_SIZE, true, &buffer))
        return failed(gemmd_last_error(connection), "registering memory");
    stamps.over[COLD_REGISTER] = now();
    if (multiply(connection, buffer, size, &result))
        return failed(gemmd_last_error(connection), "the product");
    stamps.over[COLD_PRODUCT] = now();
    stamps.queued = result.queued_seconds;
    stamps.device = result.device_seconds;
    bool is_told = write(COLD_FD, &stamps, sizeof(stamps)) == (ssize_t)sizeof(stamps);
    gemmd_close(connection);
    return !is_told;
}
