/*
 * NumPy's .npy files: versions 1 to 3 read, version 1 written; C and Fortran order; the element
 * types of gemmd. The header is a Python literal; only its fixed shape is understood, nothing is
 * evaluated, and no claim in it is believed before it is held against the file's size.
 *
 * bf16 has no letter in NumPy. np.save of an ml_dtypes array writes '<V2' (two opaque bytes), which
 * is read and written as bf16 here; 'bfloat16' is read too. '<u2' may carry bf16 or anything else:
 * it reads as DTYPE_NONE until npy_view() says what it is.
 *
 * A struct npy owns its data; any thread, one at a time.
 */
#pragma once

#include "../daemon/core/dtype.h"
#include "../daemon/core/status.h"
#include "../daemon/core/std.h"

#define NPY_DIMENSIONS_MAX 8
#define NPY_DESCR_MAX      16
#define NPY_PREFIX_SIZE    12    /* magic, version, length of the header: at most these bytes */
#define NPY_HEADER_MAX     10000 /* NumPy's own limit for headers that it does not trust */

struct npy {
    enum dtype dtype; /* DTYPE_NONE: two bytes of unknown meaning */
    int ndim;
    int64_t shape[NPY_DIMENSIONS_MAX];
    bool fortran; /* the first dimension is the dense one; never set for fewer than 2 dimensions */
    void *data;   /* owned, 64-byte aligned */
    size_t size;  /* bytes of data */
    char descr[NPY_DESCR_MAX]; /* as the file said, for messages */
};

#define NPY_NULL ((struct npy){0})

/* Every failure fills the fault (its argument is `path`) and returns this. */
enum {
    NPY_E_REFUSED = 1,
};

int npy_read(const char *path, struct npy *ret_npy, struct fault *ret_fault);
/* Replaces what is at `path`; a regular file that could not be written whole is removed. */
int npy_write(const char *path, const struct npy *npy, struct fault *ret_fault);
/* Zeroed memory for a C-order array; only for lack of memory it fails. */
int npy_new(
    enum dtype dtype, int ndim, const int64_t *shape, struct npy *ret_npy, struct fault *ret_fault);
/* Says that the two bytes of each element are bf16 or fp16. Anything else must match already. */
int npy_view(struct npy *npy, enum dtype dtype, struct fault *ret_fault);
void npy_deinit(struct npy *npy);

/* The shape as text, "(3, 4)"; cut off when it does not fit. */
void npy_shape_text(const struct npy *npy, char *ret_text, size_t size);

/* The two pure halves, for the files above and the fuzzer. Parsing takes the first bytes of a file,
 * fills everything but data, and returns the offset of the data. */
int npy_header_parse(const uint8_t *bytes,
                     size_t size,
                     struct npy *ret_npy,
                     size_t *ret_offset,
                     struct fault *ret_fault);
/* Bytes written, a multiple of 64. `ret_bytes` has room for NPY_HEADER_WRITE_MAX. */
#define NPY_HEADER_WRITE_MAX 320
size_t npy_header_format(const struct npy *npy, uint8_t ret_bytes[NPY_HEADER_WRITE_MAX]);
