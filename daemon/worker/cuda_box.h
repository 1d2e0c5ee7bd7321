/*
 * A strided copy between host and device: `items` matrices of `rows` rows of `width` bytes, with
 * pitches and strides of their own on each side. Only the rows' bytes are touched, on both sides,
 * in as few driver calls as the strides allow.
 */
#pragma once

#include "driver.h"

enum cuda_box_direction {
    CUDA_BOX_TO_DEVICE,
    CUDA_BOX_TO_HOST,
};

struct cuda_box {
    uint64_t width; /* bytes of a row */
    uint64_t rows, items;
    uint64_t host_pitch, device_pitch;   /* bytes from row to row */
    uint64_t host_stride, device_stride; /* bytes from item to item */
    char *host;
    CUdeviceptr device;
};

/* Queues the copy on the stream. As driver_check(). */
int cuda_box_copy(const struct driver *driver,
                  CUstream stream,
                  enum cuda_box_direction direction,
                  const struct cuda_box *box,
                  struct fault *ret_fault);
