/*
 * The CUDA backend over the fake driver: opened anew, given a kernel, and closed with nothing left.
 * FAKE_DRIVER, the library's path, is defined for the tests that link it.
 */
#pragma once

#include "../../daemon/worker/backend.h"
#include "../support/fake_driver.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static inline struct backend *fake_gpu_open(void)
{
    struct backend *gpu = NULL;
    struct fault fault = FAULT_NONE;

    (void)setenv("GEMMD_LIBCUDA", FAKE_DRIVER, 1);
    fake_driver_reset();
    cr_assert_eq(backend_cuda_open("cuda", NULL, &gpu, &fault), 0, "%s", fault.message);
    return gpu;
}

/* For fake_gpu_load(), where any kernel will do; its tiles are small, so that a product has many.
 */
static inline struct link_message fake_gpu_kernel(uint64_t id)
{
    return (struct link_message){.id = id,
                                 .threads = 128,
                                 .shared_memory = 64 << 10,
                                 .ctas_per_multiprocessor = 1,
                                 .tile_m = 16,
                                 .tile_n = 32};
}

/* `request`: all but its kind, and the names. */
static inline void fake_gpu_load(struct backend *gpu, struct link_message request)
{
    struct fault fault = FAULT_NONE;

    request.kind = LINK_LOAD;
    (void)strcpy(request.entry, "gemm");
    (void)strcpy(request.configuration, "test");
    cr_assert_eq(gpu->operations->load(gpu, &request, "\177ELF", &fault), 0, "%s", fault.message);
}

static inline void fake_gpu_close(struct backend *gpu)
{
    static const struct fake_driver_live none;
    struct fake_driver_live live;

    gpu->operations->close(gpu);
    live = fake_driver_live();
    cr_assert_eq(memcmp(&live, &none, sizeof(none)), 0, "something was not given back");
}
