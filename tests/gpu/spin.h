/*
 * A process with a grid that fills the device and does not leave: what a resident kernel is to the
 * driver. It takes every thread slot of every multiprocessor, so nothing else can be placed.
 */
#pragma once

#include "../../daemon/worker/driver.h"

#define SPIN_BYTES     (1u << 20) /* of each piece of memory below */
#define SPIN_CUBIN_MAX (1u << 20)

struct spin_cubin {
    size_t size;
    char bytes[SPIN_CUBIN_MAX];
};

/* Everything a call may need, made before the grid starts. */
struct spin {
    struct driver driver;
    CUdevice device;
    CUmodule module, other; /* the same image, loaded twice */
    CUfunction spin, nop;
    CUstream grid_stream, stream; /* non-blocking, both */
    volatile uint32_t *stop, *started;
    CUdeviceptr stop_device, started_device;
    CUdeviceptr memory, other_memory, async_memory;
    CUdeviceptr range; /* reserved, nothing mapped */
    CUdeviceptr mapped;
    CUmemGenericAllocationHandle handle; /* mapped at `mapped` */
    int fd;                              /* and exported */
    size_t granularity;
    void *pinned, *registered, *plain;
    CUmemoryPool pool;
    const void *image;  /* the cubin */
    CUipcMemHandle ipc; /* of another process; set by the caller */
};

/* Finds the device and compiles the kernels for it. For a process of its own: NVRTC and CUDA do
 * not survive a fork. */
int spin_compile(struct spin_cubin *ret_cubin, struct fault *ret_fault);
int spin_prepare(struct spin *spin, const struct spin_cubin *cubin, struct fault *ret_fault);
/* Returns once every CTA runs; false when they do not within two seconds. */
bool spin_start(struct spin *spin);
void spin_stop(struct spin *spin);

/* A call that the daemon does not use. */
#define SPIN_CALL(spin, name) ((__typeof__(cu##name) *)driver_symbol(&(spin)->driver, "cu" #name))
