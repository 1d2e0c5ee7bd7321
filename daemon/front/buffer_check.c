/*
 * What clients say about buffers, held against what is allowed and against their descriptors.
 */
#include "buffer_check.h"

#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>

enum status buffer_check_name(const struct buffer_request *request, struct fault *ret_fault)
{
    if (request->name_size == 0 || request->name_size > BUFFER_NAME_MAX)
        return fault_set(ret_fault, STATUS_INVALID_ARGUMENT, "name",
                         "the name has %zu bytes; allowed is 1 to %d", request->name_size,
                         BUFFER_NAME_MAX);
    for (size_t i = 0; i < request->name_size; i++) {
        char c = request->name[i];

        if (c < 0x21 || c > 0x7e || c == '/')
            return fault_set(ret_fault, STATUS_INVALID_ARGUMENT, "name",
                             "byte %zu of the name is 0x%02x; allowed is printable ASCII without "
                             "space and '/'",
                             i, (unsigned char)c);
    }
    return STATUS_OK;
}

enum status buffer_check_request(const struct buffer_request *request, struct fault *ret_fault)
{
    if (request->size == 0 || request->size > INT64_MAX)
        return fault_set(ret_fault, STATUS_INVALID_ARGUMENT, "size",
                         "size is %" PRIu64 "; allowed is 1 to 2^63 - 1", request->size);
    if (request->mode > 0777)
        return fault_set(ret_fault, STATUS_INVALID_ARGUMENT, "mode",
                         "mode is 0%o; allowed are permission bits up to 0777",
                         (unsigned)request->mode);
    if (request->is_exportable && request->kind != BUFFER_DEVICE)
        return fault_set(ret_fault, STATUS_INVALID_ARGUMENT, "exportable",
                         "exportable is for device memory; the descriptor of host memory comes "
                         "with each handle");
    return request->name ? buffer_check_name(request, ret_fault) : STATUS_OK;
}

enum status buffer_check_import(const struct buffer_request *request, struct fault *ret_fault)
{
    uint64_t end;

    if (request->offset % BUFFER_IMPORT_ALIGNMENT != 0)
        return fault_set(ret_fault, STATUS_INVALID_ARGUMENT, "offset",
                         "offset is %" PRIu64 "; allowed are multiples of %d", request->offset,
                         BUFFER_IMPORT_ALIGNMENT);
    if (add_overflows(request->offset, request->size, &end) || end > INT64_MAX)
        return fault_set(ret_fault, STATUS_INVALID_ARGUMENT, "offset",
                         "offset %" PRIu64 " and size %" PRIu64 " exceed 2^63 - 1", request->offset,
                         request->size);
    if (request->allocation != 0 && (request->allocation < end || request->allocation > INT64_MAX))
        return fault_set(ret_fault, STATUS_INVALID_ARGUMENT, "allocation",
                         "allocation is %" PRIu64 "; the buffer ends at %" PRIu64 " of it",
                         request->allocation, end);
    return STATUS_OK;
}

/* Seals first: without F_SEAL_SHRINK the size could change right after we looked at it, and a job
 * would meet SIGBUS. */
enum status buffer_check_memfd(int fd, uint64_t size, bool writable, struct fault *ret_fault)
{
    int seals = fcntl(fd, F_GET_SEALS);
    int flags = fcntl(fd, F_GETFL);
    struct statfs filesystem;
    struct stat status;

    if (fstat(fd, &status) < 0 || fstatfs(fd, &filesystem) < 0 || seals < 0 || flags < 0 ||
        !S_ISREG(status.st_mode))
        return fault_set(ret_fault, STATUS_INVALID_ARGUMENT, "fd",
                         "the descriptor is not a memfd that can be sealed");
    if (filesystem.f_type != TMPFS_MAGIC)
        return fault_set(ret_fault, STATUS_INVALID_ARGUMENT, "fd",
                         "the memfd lies on huge pages; allowed are ordinary pages");
    if (!(seals & F_SEAL_SHRINK))
        return fault_set(ret_fault, STATUS_INVALID_ARGUMENT, "fd", "the memfd lacks F_SEAL_SHRINK");
    if ((flags & O_ACCMODE) == O_WRONLY || (writable && (flags & O_ACCMODE) != O_RDWR))
        return fault_set(ret_fault, STATUS_INVALID_ARGUMENT, "fd", "the memfd is not open for %s",
                         writable ? "reading and writing" : "reading");
    if (writable && (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)))
        return fault_set(ret_fault, STATUS_INVALID_ARGUMENT, "fd",
                         "the memfd is sealed against writing, register it read-only");
    if (size > (uint64_t)status.st_size)
        return fault_set(ret_fault, STATUS_INVALID_ARGUMENT, "size",
                         "size is %" PRIu64 ", the memfd has %" PRIu64 " bytes", size,
                         (uint64_t)status.st_size);
    return STATUS_OK;
}
