/*
 * What a tensor map says of one operand of a job, before the driver packs it: a pure function of
 * the job and of the box that the kernel's copies move. Dimensions are columns, rows, items.
 */
#pragma once

#include "../../kernels_src/abi/job.h"
#include "../core/dtype.h"
#include "../link/link_message.h"

struct tensor_shape {
    uint64_t address;
    enum dtype dtype;
    uint64_t size[3];   /* elements */
    uint64_t stride[2]; /* bytes from row to row and from item to item: multiples of 16 */
    uint32_t box[3];    /* elements */
};

/* `operand`: GEMMD_TENSOR_A, ... False when the job's copies have nothing to move. An operand that
 * all items share has one item. */
bool tensor_shape_of(const struct gemmd_job *job,
                     int operand,
                     const struct link_box *box,
                     struct tensor_shape *ret_shape);
/* Of A or B: the same, with a box of as many rows as the last one has that is not whole. False when
 * all are, or when rows go along K, where zeros must be. */
bool tensor_shape_of_edge(const struct gemmd_job *job,
                          int operand,
                          const struct link_box *box,
                          struct tensor_shape *ret_shape);
