#include "buffer_check.h"

#include "../core/error.h"
#include "../core/log.h"
#include "copies.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

void buffers_init(struct buffers *buffers, struct worker_process *worker, struct quota *quota)
{
    *buffers = (struct buffers){.worker = worker, .quota = quota};
    list_init(&buffers->all);
    slabs_init(&buffers->slabs, worker);
}

void buffers_deinit(struct buffers *buffers)
{
    assert(list_is_empty(&buffers->all));
    slabs_deinit(&buffers->slabs);
}

void buffers_end(struct buffers *buffers)
{
    list_for_each_safe(cursor, following, &buffers->all)
    {
        struct buffer *buffer = container_of(cursor, struct buffer, link);

        (void)buffer_ref(buffer);
        buffer_forget_name(buffer);
        if (!buffer->is_made)
            (void)buffer_unref(buffer);
        (void)buffer_unref(buffer);
    }
}

/* --- making ---------------------------------------------------------------------------------- */

/* More seals may come: buffer_freeze(). fchmod: a reader gets a read-only descriptor, and
 * /proc/self/fd would let it open that again for writing if the file's own mode let it. */
static int memfd_create_sealed(uint64_t size, int *ret_fd)
{
    cleanup(fd_closep) int fd = memfd_create("gemmd-buffer", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0)
        return error_origin(-errno);
    if (ftruncate(fd, (off_t)size) < 0 || fchmod(fd, 0600) < 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) < 0)
        return error_origin(-errno);
    *ret_fd = steal(fd, -1);
    return 0;
}

static struct buffer *find_by_name(struct buffers *buffers, const char *name, size_t size)
{
    list_for_each(cursor, &buffers->all)
    {
        struct buffer *buffer = container_of(cursor, struct buffer, link);

        if (size > 0 && strlen(buffer->name) == size && memcmp(buffer->name, name, size) == 0)
            return buffer;
    }
    return NULL;
}

/* What a size takes on the device, which hands out whole units. Saturates: the quota refuses it. */
static uint64_t allocation_of(const struct buffers *buffers, uint64_t size)
{
    uint64_t unit = MAX(buffers->worker->device.allocation_unit, 1u), rounded;

    return add_overflows(size, unit - 1, &rounded) ? UINT64_MAX : rounded / unit * unit;
}

static enum quota_resource bytes_of(const struct buffers *buffers,
                                    const struct buffer_request *request)
{
    if (request->kind == BUFFER_HOST)
        return QUOTA_HOST_BYTES;
    if (!request->import)
        return QUOTA_DEVICE_BYTES;
    /* A client's "device" memory on the CPU is memory of this machine like any other. */
    return buffers->worker->device.kind == LINK_DEVICE_CPU ? QUOTA_HOST_BYTES
                                                           : QUOTA_IMPORTED_BYTES;
}

/* A small one that nobody can ask the descriptor of. */
static bool is_cut(const struct buffer_request *request)
{
    return request->kind == BUFFER_DEVICE && !request->import && !request->is_exportable &&
           request->size <= SLAB_CUT_MAX;
}

static int charge(struct buffers *buffers,
                  struct buffer *buffer,
                  const struct buffer_request *request,
                  struct fault *ret_fault)
{
    enum quota_resource bytes = bytes_of(buffers, request);
    uint64_t amount =
        bytes == QUOTA_HOST_BYTES ? request->offset + request->size : buffer->allocation;
    int r = quota_charge(buffers->quota, request->uid, QUOTA_BUFFERS, 1, &buffer->charge_count,
                         ret_fault);

    if (r == 0 && !is_cut(request))
        r = quota_charge(buffers->quota, request->uid, QUOTA_DESCRIPTORS, 1, &buffer->charge_fd,
                         ret_fault);
    if (r == 0)
        r = quota_charge(buffers->quota, request->uid, bytes, amount, &buffer->charge_bytes,
                         ret_fault);
    if (r == QUOTA_E_LIMIT)
        return BUFFER_E_FAULT;
    return error_trace(r);
}

void buffer_drop_copy(struct buffer *buffer)
{
    struct copy *copy = &buffer->copy;

    if (!copy->memory)
        return;
    list_unlink(&copy->link);
    copy->state = COPY_NONE;
    copy->copies->bytes -= copy->memory->allocation;
    copy->memory->copy_of = NULL;
    copy->memory = buffer_unref(copy->memory);
}

static void buffer_free(struct buffer *buffer)
{
    buffer_drop_copy(buffer);
    list_unlink(&buffer->link);
    buffer->table->count--;
    worker_memory_remove(buffer->table->worker, &buffer->memory);
    slab_give(&buffer->cut);
    charge_release(&buffer->charge_bytes);
    charge_release(&buffer->charge_fd);
    charge_release(&buffer->charge_count);
    free(buffer);
}

struct buffer *buffer_ref(struct buffer *buffer)
{
    buffer->references++;
    return buffer;
}

struct buffer *buffer_unref(struct buffer *buffer)
{
    if (buffer && --buffer->references == 0)
        buffer_free(buffer);
    return NULL;
}

static void buffer_unrefp(struct buffer **buffer)
{
    *buffer = buffer_unref(*buffer);
}

static enum link_memory_kind memory_kind(const struct buffer_request *request)
{
    if (request->import)
        return request->import;
    return request->kind == BUFFER_DEVICE ? LINK_MEMORY_DEVICE_CREATE : LINK_MEMORY_HOST;
}

static void import_suspected(struct memory *memory)
{
    struct buffer *buffer = container_of(memory, struct buffer, memory);

    quota_note_import_fault(buffer->table->quota, buffer->uid);
    log_warning("uid=%u memory=%" PRIu64 " state=suspect: the worker died while it imported it",
                (unsigned)buffer->uid, memory->id);
}

static void own_changed(struct memory *memory)
{
    struct buffer *buffer = container_of(memory, struct buffer, memory);

    if (buffer->changed)
        buffer->changed(buffer);
}

static void cut_changed(struct slab_cut *cut)
{
    struct buffer *buffer = container_of(cut, struct buffer, cut);

    if (buffer->changed)
        buffer->changed(buffer);
}

static struct buffer *buffer_alloc(struct buffers *buffers, const struct buffer_request *request)
{
    struct buffer *buffer = calloc(1, sizeof(*buffer));

    if (!buffer)
        return NULL;
    *buffer = (struct buffer){
        .table = buffers,
        .kind = request->kind,
        .size = request->size,
        .allocation =
            allocation_of(buffers, MAX(request->allocation, request->offset + request->size)),
        .is_exportable = request->is_exportable,
        .uid = request->uid,
        .gid = request->gid,
        .mode = request->mode,
        .references = 1,
        .memory = {.kind = memory_kind(request),
                   .fd = -1,
                   .size = request->size,
                   .offset = request->offset,
                   .is_writable = request->is_writable},
    };
    if (is_cut(request))
        buffer->allocation = slab_cut_bytes(request->size);
    buffer->memory.allocation = buffer->allocation;
    buffer->memory.changed = own_changed;
    buffer->cut.changed = cut_changed;
    if (request->handle)
        memcpy(buffer->memory.handle, request->handle, sizeof(buffer->memory.handle));
    if (request->import)
        buffer->memory.suspected = import_suspected;
    list_init(&buffer->memory.link);
    list_init(&buffer->cut.link);
    list_init(&buffer->copy.link);
    list_append(&buffers->all, &buffer->link);
    buffers->count++;
    return buffer;
}

static int note_identity(struct buffer *buffer)
{
    struct stat status;

    bool is_memfd = buffer->memory.kind == LINK_MEMORY_HOST ||
                    buffer->table->worker->device.kind == LINK_DEVICE_CPU;

    if (buffer->memory.fd < 0 || !is_memfd)
        return 0;
    if (fstat(buffer->memory.fd, &status) < 0)
        return error_origin(-errno);
    buffer->device = status.st_dev;
    buffer->inode = status.st_ino;
    return 0;
}

/* Mappings that exist stay as they are, and seals of others' memfds are theirs to refuse. */
void buffer_freeze(struct buffer *buffer)
{
    buffer->is_frozen = true;
    buffer->memory.is_writable = false;
    (void)fcntl(buffer->memory.fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE);
}

int buffer_ask_again(struct buffer *buffer)
{
    struct worker_process *worker = buffer->table->worker;
    int r;

    if (buffer->cut.slab) {
        /* Should there be no other slab, its own memory stands for it. */
        buffer->memory.state = MEMORY_LOST;
        buffer->memory.lost_status = STATUS_OUT_OF_MEMORY;
        slab_give(&buffer->cut);
        return error_trace(slab_take(&buffer->table->slabs, buffer->size, &buffer->cut));
    }
    worker_memory_remove(worker, &buffer->memory);
    r = worker_memory_add(worker, &buffer->memory);
    if (r < 0)
        buffer->memory.state = MEMORY_LOST;
    return error_trace(r);
}

struct memory *buffer_memory(struct buffer *buffer)
{
    return buffer->cut.slab ? slab_memory(&buffer->cut) : &buffer->memory;
}

uint64_t buffer_address(struct buffer *buffer)
{
    return buffer_memory(buffer)->address + (buffer->cut.slab ? buffer->cut.offset : 0);
}

bool buffer_is_imported(const struct buffer *buffer)
{
    return buffer->memory.kind == LINK_MEMORY_DEVICE_FOREIGN ||
           buffer->memory.kind == LINK_MEMORY_DEVICE_IPC;
}

bool buffer_is_same_memory(const struct buffer *a, const struct buffer *b)
{
    return a == b || (a->inode != 0 && a->inode == b->inode && a->device == b->device);
}

int buffer_new(struct buffers *buffers,
               const struct buffer_request *request,
               void (*changed)(struct buffer *buffer),
               struct buffer **ret_buffer,
               struct fault *ret_fault)
{
    cleanup(buffer_unrefp) struct buffer *buffer = NULL;
    int r;

    if (buffer_check_request(request, ret_fault) != STATUS_OK ||
        buffer_check_import(request, ret_fault) != STATUS_OK)
        return BUFFER_E_FAULT;
    if (request->name && find_by_name(buffers, request->name, request->name_size)) {
        (void)fault_set(ret_fault, STATUS_EXISTS, "name", "the name \"%.*s\" is taken",
                        (int)request->name_size, request->name);
        return BUFFER_E_FAULT;
    }
    buffer = buffer_alloc(buffers, request);
    if (!buffer)
        return error_origin(-ENOMEM);
    r = charge(buffers, buffer, request, ret_fault);
    if (r != 0)
        return r;

    if (request->fd < 0 && request->kind == BUFFER_HOST) {
        r = memfd_create_sealed(request->size, &buffer->memory.fd);
        if (r < 0) {
            (void)fault_set(ret_fault, STATUS_OUT_OF_MEMORY, "size",
                            "no host memory of %" PRIu64 " bytes: %s", request->size, strerror(-r));
            return BUFFER_E_FAULT;
        }
    }
    buffer->changed = changed;
    if (request->fd >= 0)
        buffer->memory.fd = request->fd;
    r = note_identity(buffer);
    if (r == 0)
        r = is_cut(request) ? slab_take(&buffers->slabs, request->size, &buffer->cut)
                            : worker_memory_add(buffers->worker, &buffer->memory);
    if (r < 0) {
        if (request->fd >= 0)
            buffer->memory.fd = -1; /* consumed on success only */
        return error_trace(r);
    }
    if (request->name) {
        memcpy(buffer->name, request->name, request->name_size);
        (void)buffer_ref(buffer);
    }
    *ret_buffer = steal(buffer, NULL);
    return 0;
}

void buffer_forget_name(struct buffer *buffer)
{
    if (buffer->name[0] == '\0')
        return;
    buffer->name[0] = '\0';
    (void)buffer_unref(buffer);
}

/* --- opening --------------------------------------------------------------------------------- */

/* As the kernel does for files: the first class that fits decides, root may all. */
static bool is_allowed(const struct buffer *buffer, uid_t uid, gid_t gid, bool writable)
{
    mode_t bits = buffer->mode;
    mode_t wanted = writable ? 06 : 04;

    if (uid == 0)
        return true;
    if (uid == buffer->uid)
        bits >>= 6;
    else if (gid == buffer->gid)
        bits >>= 3;
    return (bits & wanted) == wanted;
}

int buffer_open(struct buffers *buffers,
                const struct buffer_request *request,
                struct buffer **ret_buffer,
                struct fault *ret_fault)
{
    struct buffer *buffer;

    if (!request->name) {
        (void)fault_set(ret_fault, STATUS_INVALID_ARGUMENT, "name", "a name is needed");
        return BUFFER_E_FAULT;
    }
    if (buffer_check_name(request, ret_fault) != STATUS_OK)
        return BUFFER_E_FAULT;
    buffer = find_by_name(buffers, request->name, request->name_size);
    if (!buffer || !buffer->is_made) {
        (void)fault_set(ret_fault, STATUS_NOT_FOUND, "name", "there is no buffer named \"%.*s\"",
                        (int)request->name_size, request->name);
        return BUFFER_E_FAULT;
    }
    if (!is_allowed(buffer, request->uid, request->gid, request->is_writable)) {
        (void)fault_set(ret_fault, STATUS_PERMISSION, "name",
                        "uid %u may not %s \"%s\": it belongs to uid %u, mode 0%03o",
                        (unsigned)request->uid, request->is_writable ? "write" : "read",
                        buffer->name, (unsigned)buffer->uid, (unsigned)buffer->mode);
        return BUFFER_E_FAULT;
    }
    if (request->is_writable && buffer->is_frozen) {
        (void)fault_set(ret_fault, STATUS_PERMISSION, "writable", "\"%s\" is frozen", buffer->name);
        return BUFFER_E_FAULT;
    }
    *ret_buffer = buffer_ref(buffer);
    return 0;
}

int buffer_export(const struct buffer *buffer, bool writable, int *ret_fd)
{
    char path[40];
    int fd;

    if (writable) {
        fd = fcntl(buffer->memory.fd, F_DUPFD_CLOEXEC, 0);
    } else {
        (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", buffer->memory.fd);
        fd = open(path, O_RDONLY | O_CLOEXEC);
    }
    if (fd < 0)
        return error_origin(-errno);
    *ret_fd = fd;
    return 0;
}
