/*
 * Random operands without copying them over the bus: 16 MiB are made once for each type, on the
 * device they are repeated through whatever memory a row asks for, and the host sees the same bytes
 * by mapping its one copy again and again. The period is no multiple of a power of two beyond a
 * page, so rows of a matrix differ.
 *
 * Owner: the command. Thread: one.
 */
#pragma once

#include "bench.h"
#include "gpu.h"

struct data {
    struct gpu *gpu; /* borrowed */
    enum dtype dtype;
    int fd;             /* memfd with one period; -1: not made yet */
    CUdeviceptr device; /* the same on the device */
    const char *view;   /* the repetition, `view_size` bytes */
    size_t view_size;
};

/* `view_size`: the largest matrix there will be. 0, or -1. */
int data_init(struct data *data, struct gpu *gpu, enum dtype dtype, size_t view_size);
void data_deinit(struct data *data);
/* Queues the repetition into device memory: byte i is data->view[i]. 0, or -1. */
int data_spread(const struct data *data, CUdeviceptr to, size_t size);
