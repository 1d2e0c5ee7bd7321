/*
 * Memory that all multiprocessors read, one of them writes anew, and all read again, by launches
 * that overlap as the worker's do (daemon/worker/cuda_launch.h).
 *
 * What it is for: ordinary loads go through the L1 of a multiprocessor, which the stores of others
 * do not reach. Kernels on CUDA cores load A and B so, most kernels C, and so do launches that copy
 * inputs, though here by one CTA. Behind griddepcontrol.wait the PTX ISA promises that what the
 * grids before wrote is visible. Inputs that are settled are read without it: what wrote them has
 * ended before this grid began, and that a line of before is not in an L1 any more rests on "the
 * driver must invalidate global L1 cache lines between dependent grids" (PTX ISA, Cache Operators),
 * of which nobody says when it happens where a grid begins beside others. If ever a reader sees
 * what was there before, this tells so.
 *
 * A ring of four matrices: in round r a grid of one CTA writes matrix r % 4, then the kernel that
 * is looked at reads the one of up to three rounds ago, as A or as C, in as many items of a batch
 * as fill the device, or in few, which let the next launch begin at once. All values are small
 * integers, so that every result is exact, and equal to one computed on the CPU bit by bit.
 */
#pragma once

#include "../../daemon/plan/config.h"
#include "../../daemon/worker/cuda_device.h"
#include "../../daemon/worker/cuda_launch.h"

#define KERNEL_RING_SIDE     64 /* rows and columns of every matrix */
#define KERNEL_RING_SLOTS    4
#define KERNEL_RING_VERSIONS 5 /* of what is written; prime to the slots */
#define KERNEL_RING_WRITER   "sm90a.bf16.bf16.nt.64x64x64.s5.c1x1.coop.tma"

struct kernel_ring_reader {
    const char *configuration;
    uint32_t splits;
};

/* One of each class of kernels. */
#define KERNEL_RING_READERS 14
extern const struct kernel_ring_reader kernel_ring_readers[KERNEL_RING_READERS];

struct kernel_ring {
    struct driver driver;
    struct cuda_device device;
    struct link_device facts;
    struct cuda_kernels kernels;
    struct cuda_scratch scratch;
    struct cuda_workspace workspace;
    struct cuda_running running;
    CUstream stream;
    CUdeviceptr memory;
    uint64_t round;
    char *results; /* on the host */
};

struct kernel_ring_report {
    uint64_t products, wrong; /* items of batches */
    uint64_t old;             /* of those wrong: what the matrix had before it was written */
    char first[128];          /* wrong one */
};

/* 0, or why there is nothing to test on. */
int kernel_ring_open(struct kernel_ring *ring, const char *selector, struct fault *ret_fault);
void kernel_ring_close(struct kernel_ring *ring);

/* Where the four matrices lie, one behind the other, on the device. */
uint64_t kernel_ring_slots(const struct kernel_ring *ring);

/* The writer, or the reader in place of the one before. */
int kernel_ring_load(struct kernel_ring *ring,
                     const struct config *config,
                     bool is_writer,
                     const void *cubin,
                     uint64_t size,
                     struct fault *ret_fault);

/* All ways, widths and distances, each `times` times sixteen rounds. */
int kernel_ring_run(struct kernel_ring *ring,
                    const struct config *reader,
                    uint32_t splits,
                    int times,
                    struct kernel_ring_report *ret_report,
                    struct fault *ret_fault);
