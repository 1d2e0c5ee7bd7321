/*
 * Commands on the device: one stream in order, and a word in pinned memory into which the stream
 * writes how many commands it has finished, so that looking for completions is a load and no
 * driver call. From time to time the stream is asked whether the context still lives, since a
 * faulted stream never writes again.
 *
 * Every command, also one that failed before it reached the device, ends in a write of its number:
 * completions keep the order of submission.
 *
 * Owner: backend_cuda. Thread: the worker's. Host-to-host copies and fills run on a thread of the
 * driver (cuLaunchHostFunc), which touches nothing but the memory that its entry names.
 */
#pragma once

#include "../../kernels_src/abi/ring.h"
#include "../core/status.h"
#include "cuda_kernel.h"

#define CUDA_EXECUTE_DEPTH                                                                         \
    64 /* commands queued on the stream; hides the launch cost many times                          \
        */

struct cuda_execute_entry {
    uint64_t job;
    uint64_t started_ns;
    enum status status;
    struct gemmd_copy host_copy; /* for the driver's thread */
};

struct cuda_execute {
    const struct driver *driver;
    const struct cuda_kernels *kernels;
    uint32_t multiprocessors;
    CUstream stream;
    uint32_t *done; /* pinned; the low 32 bits of how many commands the device has finished */
    CUdeviceptr done_device;
    struct cuda_execute_entry entries[CUDA_EXECUTE_DEPTH];
    uint64_t submitted, finished, reaped; /* reaped <= finished <= submitted */
    uint64_t asked_ns;                    /* when the stream was last asked for its health */
};

/* As backend_cuda_open(): 0, DRIVER_E_FAULT, or < 0. */
int cuda_execute_init(struct cuda_execute *execute,
                      const struct driver *driver,
                      const struct cuda_kernels *kernels,
                      uint32_t multiprocessors,
                      struct fault *ret_fault);
/* Waits for what was submitted. */
void cuda_execute_deinit(struct cuda_execute *execute);

/* As backend_operations: submit, pending, reap. */
int cuda_execute_submit(struct cuda_execute *execute, const struct gemmd_command *command);
uint32_t cuda_execute_pending(const struct cuda_execute *execute);
int cuda_execute_reap(struct cuda_execute *execute, struct gemmd_completion *ret_completion);
