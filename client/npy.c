/*
 * .npy files on disk: whole arrays in, whole arrays out.
 */
#include "npy.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DATA_ALIGNMENT 64

static int refuse_errno(const char *path, const char *what, struct fault *ret_fault)
{
    fault_set(ret_fault, errno == ENOMEM ? STATUS_OUT_OF_MEMORY : STATUS_INVALID_ARGUMENT, path,
              "%s: %s: %s", path, what, strerror(errno));
    return NPY_E_REFUSED;
}

/* Puts the file's name in front of what the header's parser said. */
static int refuse_file(const char *path, struct fault *ret_fault)
{
    struct fault inner = *ret_fault;

    fault_set(ret_fault, inner.status, path, "%s: %s", path, inner.message);
    return NPY_E_REFUSED;
}

/* As many bytes as there are, at most `size`; -1 with errno. */
static ssize_t read_at(int fd, void *buffer, size_t size, off_t offset)
{
    size_t done = 0;

    while (done < size) {
        ssize_t n = pread(fd, (char *)buffer + done, size - done, offset + (off_t)done);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        if (n == 0)
            break;
        done += (size_t)n;
    }
    return (ssize_t)done;
}

static int write_all(int fd, const void *buffer, size_t size)
{
    size_t done = 0;

    while (done < size) {
        ssize_t n = write(fd, (const char *)buffer + done, size - done);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        done += (size_t)n;
    }
    return 0;
}

static void *allocate(size_t size)
{
    size_t rounded = (size + DATA_ALIGNMENT - 1) / DATA_ALIGNMENT * DATA_ALIGNMENT;

    return aligned_alloc(DATA_ALIGNMENT, MAX(rounded, (size_t)DATA_ALIGNMENT));
}

static int
read_data(int fd, const char *path, size_t offset, struct npy *npy, struct fault *ret_fault)
{
    ssize_t n;

    npy->data = allocate(npy->size);
    if (!npy->data)
        return refuse_errno(path, "no memory for the array", ret_fault);
    n = read_at(fd, npy->data, npy->size, (off_t)offset);
    if (n < 0)
        return refuse_errno(path, "cannot read", ret_fault);
    if ((size_t)n < npy->size) {
        fault_set(ret_fault, STATUS_INVALID_ARGUMENT, path, "%s: it shrank while it was read",
                  path);
        return NPY_E_REFUSED;
    }
    return 0;
}

static int read_open(int fd, const char *path, struct npy *ret_npy, struct fault *ret_fault)
{
    uint8_t head[NPY_PREFIX_SIZE + NPY_HEADER_MAX];
    cleanup(npy_deinit) struct npy npy = NPY_NULL;
    struct stat status;
    size_t offset;
    ssize_t n;
    int r;

    if (fstat(fd, &status) < 0)
        return refuse_errno(path, "cannot stat", ret_fault);
    if (!S_ISREG(status.st_mode)) {
        fault_set(ret_fault, STATUS_INVALID_ARGUMENT, path, "%s: not a regular file", path);
        return NPY_E_REFUSED;
    }
    n = read_at(fd, head, sizeof(head), 0);
    if (n < 0)
        return refuse_errno(path, "cannot read", ret_fault);
    if (npy_header_parse(head, (size_t)n, &npy, &offset, ret_fault))
        return refuse_file(path, ret_fault);
    if ((uint64_t)status.st_size - offset < npy.size) {
        fault_set(ret_fault, STATUS_INVALID_ARGUMENT, path,
                  "%s: it is cut off: %" PRIu64 " bytes of data where its shape needs %zu", path,
                  (uint64_t)status.st_size - offset, npy.size);
        return NPY_E_REFUSED;
    }
    r = read_data(fd, path, offset, &npy, ret_fault);
    if (r == 0)
        *ret_npy = steal(npy, NPY_NULL);
    return r;
}

int npy_read(const char *path, struct npy *ret_npy, struct fault *ret_fault)
{
    /* A FIFO without a writer would block the open. */
    cleanup(fd_closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0)
        return refuse_errno(path, "cannot open", ret_fault);
    return read_open(fd, path, ret_npy, ret_fault);
}

/* What was written is no array: it goes, unless it is a device or a pipe. */
static void remove_partial(int fd, const char *path)
{
    struct stat status;

    if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode))
        (void)unlink(path);
}

int npy_write(const char *path, const struct npy *npy, struct fault *ret_fault)
{
    uint8_t head[NPY_HEADER_WRITE_MAX];
    size_t head_size = npy_header_format(npy, head);
    cleanup(fd_closep) int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    int r;

    if (fd < 0)
        return refuse_errno(path, "cannot create", ret_fault);
    if (write_all(fd, head, head_size) == 0 && write_all(fd, npy->data, npy->size) == 0) {
        /* Some file systems report a full disk only here. */
        if (close(steal(fd, -1)) == 0)
            return 0;
        return refuse_errno(path, "cannot write", ret_fault);
    }
    r = refuse_errno(path, "cannot write", ret_fault);
    remove_partial(fd, path);
    return r;
}

int npy_new(
    enum dtype dtype, int ndim, const int64_t *shape, struct npy *ret_npy, struct fault *ret_fault)
{
    struct npy npy = {.dtype = dtype, .ndim = ndim};
    uint64_t bytes = dtype_size(dtype);
    bool overflows = false;

    assert(ndim >= 0 && ndim <= NPY_DIMENSIONS_MAX && bytes > 0);
    for (int i = 0; i < ndim; i++) {
        npy.shape[i] = shape[i];
        overflows |= mul_overflows(bytes, (uint64_t)shape[i], &bytes);
    }
    npy.size = (size_t)bytes;
    npy.data = overflows || bytes > INT64_MAX ? NULL : allocate(npy.size);
    if (!npy.data) {
        fault_set(ret_fault, STATUS_OUT_OF_MEMORY, "",
                  "no memory for an array of %" PRIu64 " bytes", overflows ? UINT64_MAX : bytes);
        return NPY_E_REFUSED;
    }
    memset(npy.data, 0, npy.size);
    *ret_npy = npy;
    return 0;
}

int npy_view(struct npy *npy, enum dtype dtype, struct fault *ret_fault)
{
    bool is_opaque = npy->dtype == DTYPE_NONE || npy->dtype == DTYPE_BF16;

    if (npy->dtype == dtype || (is_opaque && dtype_size(dtype) == 2)) {
        npy->dtype = dtype;
        return 0;
    }
    fault_set(ret_fault, STATUS_INVALID_ARGUMENT, "",
              "elements of type '%s' cannot be taken as %s; only '<V2' and '<u2' can be named so",
              npy->descr, dtype_name(dtype));
    return NPY_E_REFUSED;
}

void npy_deinit(struct npy *npy)
{
    free(npy->data);
    *npy = NPY_NULL;
}
