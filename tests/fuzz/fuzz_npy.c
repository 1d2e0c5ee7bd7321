/*
 * Any bytes as a .npy header: never out of bounds, and what is accepted keeps its meaning when it
 * is written and read again.
 */
#include "../../client/npy.h"

#include <stdlib.h>
#include <string.h>

static void check(bool holds)
{
    if (!holds)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t written[NPY_HEADER_WRITE_MAX];
    struct npy npy, again;
    struct fault fault;
    size_t offset, elements = 1;

    if (npy_header_parse(data, size, &npy, &offset, &fault))
        return 0;
    check(offset <= size && npy.ndim >= 0 && npy.ndim <= NPY_DIMENSIONS_MAX && !npy.data);
    for (int i = 0; i < npy.ndim; i++)
        elements *= (size_t)npy.shape[i];
    check(npy.size == elements * (npy.dtype == DTYPE_NONE ? 2 : dtype_size(npy.dtype)));

    size = npy_header_format(&npy, written);
    check(size % 64 == 0);
    check(npy_header_parse(written, size, &again, &offset, &fault) == 0 && offset == size);
    check(again.dtype == npy.dtype && again.ndim == npy.ndim && again.fortran == npy.fortran);
    check(memcmp(again.shape, npy.shape, sizeof(npy.shape)) == 0);
    return 0;
}
