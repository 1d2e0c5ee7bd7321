/*
 * buffer.create, register, import, open, free, freeze, export. Memory is there when the worker has
 * mapped it, so the answers to create and register come then; on a device that does not hand out
 * zeroed memory, after a clearing job of its own.
 */
#include "handlers.h"

#include "../core/clock.h"
#include "../core/error.h"
#include "server.h"

#include <inttypes.h>
#include <stdio.h>

/* Takes the reference on success; SESSION_E_FAULT and < 0 as a handler's. */
static int answer_buffer(
    struct session *session, uint32_t id, struct buffer *buffer, bool writable, struct fault *fault)
{
    struct reply_buffer reply = {
        .size = buffer->size,
        .kind = buffer->kind,
        .writable = writable,
    };
    cleanup(fd_closep) int fd = -1;
    bool is_maker = !buffer->is_made;
    int r = buffer->kind == BUFFER_HOST ? buffer_export(buffer, writable, &fd) : 0;

    if (r < 0)
        return error_trace(r);
    r = handles_add(&session->handles, buffer, writable, is_maker, &reply.id, fault);
    if (r != 0)
        return r == BUFFER_E_FAULT ? SESSION_E_FAULT : error_trace(r);
    buffer->is_made = true;
    session_answer_buffer(session, id, &reply, steal(fd, -1));
    return 0;
}

/* The creation of a buffer ended, well or not; its first reference is with us. */
void allocate_answer(struct buffer *buffer, const struct fault *fault)
{
    struct session *session = steal(buffer->requester, NULL);
    struct fault refused = *fault;
    int r = SESSION_E_FAULT;

    if (session && fault->status == STATUS_OK)
        r = answer_buffer(session, buffer->request_id, buffer, buffer_memory(buffer)->is_writable,
                          &refused);
    if (r == 0)
        return;
    if (session && r == SESSION_E_FAULT)
        session_answer_fault(session, buffer->request_id, &refused);
    else if (session)
        session_close(session, "an error of the daemon");
    buffer_forget_name(buffer);
    (void)buffer_unref(buffer);
}

static int clear(struct session *session, struct buffer *buffer, struct fault *fault)
{
    struct job *job = job_new();
    int r;

    if (!job)
        return error_origin(-ENOMEM);
    r = quota_charge(&session->server->quota, session->uid, QUOTA_JOBS, 1, &job->charge, fault);
    if (r != 0) {
        (void)job_free(job);
        return r;
    }
    job->session = session;
    job->request = buffer->request_id;
    job->method = METHOD_BUFFER_CREATE;
    job->kind = JOB_ZERO;
    job->received_ns = clock_now_ns();
    job->made = buffer_ref(buffer);
    job->predicted_seconds = 5e-6 + (double)buffer->size / 1e12;
    job_use_buffer(job, OPERAND_D, buffer_ref(buffer), 0, buffer->size);
    queue_submit(&session->server->queue, job, &session->stream);
    return 0;
}

/* Several creations may have waited for one slab: for the first of them there is another now. */
static bool make_room(struct server *server, const struct buffer *buffer)
{
    return (buffer->cut.slab && slabs_have_room(&server->buffers.slabs, buffer->size)) ||
           copies_release(&server->copies, NULL);
}

/* Copies that nobody uses make room for a creation that found none. */
static bool must_retry(const struct buffer *buffer, const struct memory *memory)
{
    struct server *server = container_of(buffer->table, struct server, buffers);

    return memory->state == MEMORY_LOST && memory->lost_status == STATUS_OUT_OF_MEMORY &&
           buffer->kind == BUFFER_DEVICE && !buffer_is_imported(buffer) && buffer->requester &&
           make_room(server, buffer);
}

/* MAPPED or LOST. Also called when a later worker mapped it again: nobody waits then. */
static void memory_changed(struct buffer *buffer)
{
    const struct memory *memory = buffer_memory(buffer);
    struct session *session = buffer->requester;
    struct fault fault = FAULT_NONE;
    bool is_zero;
    int r;

    if (buffer->is_made || buffer->is_clearing)
        return;
    if (must_retry(buffer, memory)) {
        (void)buffer_ask_again(buffer); /* when it cannot, it is LOST as before */
        memory = buffer_memory(buffer);
        if (memory->state == MEMORY_WANTED)
            return;
    }
    if (memory->state == MEMORY_LOST)
        (void)fault_set(&fault, memory->lost_status, memory->lost_argument, "%s",
                        memory->lost_reason);
    /* A new memfd is zero, and so is a CPU worker's device memory, which is one; a place in a slab
     * may have been another's. A client's memory holds what the client wants. */
    is_zero = memory->kind != LINK_MEMORY_DEVICE_CREATE ||
              (buffer->table->worker->device.kind == LINK_DEVICE_CPU && !buffer->cut.slab);
    if (!session || is_zero || fault.status != STATUS_OK) {
        allocate_answer(buffer, &fault);
        return;
    }
    buffer->is_clearing = true;
    r = clear(session, buffer, &fault);
    if (r < 0)
        (void)fault_set(&fault, STATUS_OUT_OF_MEMORY, "", "the daemon has no memory for a job");
    if (r != 0)
        allocate_answer(buffer, &fault);
}

/* Nobody waits for these creations any more. They end like others, with the worker's answer or the
 * clearing job, and stay charged until then: what is under way to a slow worker is bounded too. */
void allocate_forget(struct server *server, struct session *session)
{
    list_for_each(cursor, &server->buffers.all)
    {
        struct buffer *buffer = container_of(cursor, struct buffer, link);

        if (buffer->requester != session)
            continue;
        buffer->requester = NULL;
        buffer_forget_name(buffer);
    }
}

static int make(struct session *session,
                uint32_t id,
                const struct buffer_request *request,
                struct fault *fault)
{
    struct buffer *buffer;
    struct server *server = session->server;
    int r = buffer_new(&server->buffers, request, memory_changed, &buffer, fault);

    /* Its own copies are no reason to refuse a uid what it asks for. */
    if (r == BUFFER_E_FAULT && fault->status == STATUS_LIMIT && request->kind == BUFFER_DEVICE &&
        copies_release(&server->copies, &session->uid))
        r = buffer_new(&server->buffers, request, memory_changed, &buffer, fault);
    if (r == BUFFER_E_FAULT)
        return SESSION_E_FAULT;
    if (r < 0)
        return error_trace(r);
    buffer->requester = session;
    buffer->request_id = id;
    if (buffer_memory(buffer)->state == MEMORY_MAPPED)
        memory_changed(buffer);
    return 0;
}

int allocate_create(struct session *session, const struct request *request, struct fault *fault)
{
    const struct request_buffer *body = &request->body.buffer;
    const struct buffer_request wanted = {
        .kind = body->kind,
        .size = body->size,
        .name = body->name_size > 0 ? body->name : NULL,
        .name_size = body->name_size,
        .mode = (mode_t)body->mode,
        .is_writable = true,
        .is_exportable = body->exportable,
        .uid = session->uid,
        .gid = session->gid,
        .fd = -1,
    };

    return make(session, request->id, &wanted, fault);
}

int allocate_register(struct session *session,
                      const struct request *request,
                      int *fd,
                      struct fault *fault)
{
    const struct request_buffer *body = &request->body.buffer;
    const struct buffer_request wanted = {
        .kind = BUFFER_HOST,
        .size = body->size,
        .mode = 0600,
        .is_writable = body->writable,
        .uid = session->uid,
        .gid = session->gid,
        .fd = *fd,
    };
    int r;

    if (buffer_check_memfd(*fd, body->size, body->writable, fault) != STATUS_OK)
        return SESSION_E_FAULT;
    r = make(session, request->id, &wanted, fault);
    if (r == 0)
        *fd = -1;
    return r;
}

/* What a descriptor is, only the worker's driver can say; of the CPU's it is a memfd. */
static enum status check_imported(const struct session *session,
                                  const struct request_buffer *body,
                                  int fd,
                                  struct fault *fault)
{
    uint64_t end;

    if (!quota_may_import(&session->server->quota, session->uid, body->handle != NULL, fault))
        return fault->status;
    if (fd < 0 || session->server->worker.device.kind == LINK_DEVICE_CUDA ||
        add_overflows(body->offset, body->size, &end))
        return STATUS_OK;
    return buffer_check_memfd(fd, end, body->writable, fault);
}

int allocate_import(struct session *session,
                    const struct request *request,
                    int *fd,
                    struct fault *fault)
{
    const struct request_buffer *body = &request->body.buffer;
    const struct buffer_request wanted = {
        .kind = BUFFER_DEVICE,
        .import = body->handle ? LINK_MEMORY_DEVICE_IPC : LINK_MEMORY_DEVICE_FOREIGN,
        .size = body->size,
        .offset = body->offset,
        .allocation = body->allocation,
        .handle = body->handle,
        .name = body->name_size > 0 ? body->name : NULL,
        .name_size = body->name_size,
        .mode = (mode_t)body->mode,
        .is_writable = body->writable,
        .uid = session->uid,
        .gid = session->gid,
        .fd = body->handle ? -1 : *fd,
    };
    int r;

    static_assert(REQUEST_HANDLE_SIZE == LINK_IPC_HANDLE, "one handle");
    if (check_imported(session, body, wanted.fd, fault) != STATUS_OK)
        return SESSION_E_FAULT;
    r = make(session, request->id, &wanted, fault);
    if (r == 0 && !body->handle)
        *fd = -1;
    return r;
}

int allocate_open(struct session *session, const struct request *request, struct fault *fault)
{
    const struct request_buffer *body = &request->body.buffer;
    const struct buffer_request wanted = {
        .name = body->name_size > 0 ? body->name : NULL,
        .name_size = body->name_size,
        .is_writable = body->writable,
        .uid = session->uid,
        .gid = session->gid,
        .fd = -1,
    };
    struct buffer *buffer;
    int r = buffer_open(&session->server->buffers, &wanted, &buffer, fault);

    if (r == BUFFER_E_FAULT)
        return SESSION_E_FAULT;
    r = answer_buffer(session, request->id, buffer, body->writable, fault);
    if (r != 0)
        (void)buffer_unref(buffer);
    return r;
}

/* NULL with the fault. */
static struct handle *
find(const struct session *session, const struct request *request, struct fault *fault)
{
    struct handle *handle = handles_find(&session->handles, request->body.buffer.id);

    if (!handle)
        (void)fault_set(fault, STATUS_NOT_FOUND, "buffer",
                        "buffer is %" PRIu64 "; this connection has no such buffer",
                        request->body.buffer.id);
    return handle;
}

int allocate_free(struct session *session, const struct request *request, struct fault *fault)
{
    struct handle *handle = find(session, request, fault);

    if (!handle)
        return SESSION_E_FAULT;
    handles_remove(&session->handles, handle, session->uid);
    session_answer_empty(session, request->id);
    return 0;
}

/* --- freeze ---------------------------------------------------------------------------------- */

/* Writes of this connection that are under way would be missed by a copy. */
static bool is_being_written(const struct session *session, const struct buffer *buffer)
{
    list_for_each(cursor, &session->stream.jobs)
    {
        const struct job *job = container_of(cursor, struct job, stream_link);
        const struct buffer *written = job->operand[OPERAND_D].buffer;

        if (written && buffer_is_same_memory(written, buffer))
            return true;
    }
    return false;
}

int allocate_freeze(struct session *session, const struct request *request, struct fault *fault)
{
    struct handle *handle = find(session, request, fault);
    uint64_t id = request->body.buffer.id;

    if (!handle)
        return SESSION_E_FAULT;
    if (handle->buffer->kind != BUFFER_HOST)
        (void)fault_set(fault, STATUS_INVALID_ARGUMENT, "buffer",
                        "buffer %" PRIu64 " is device memory; host memory is frozen", id);
    else if (session->uid != handle->buffer->uid && session->uid != 0)
        (void)fault_set(fault, STATUS_PERMISSION, "buffer",
                        "buffer %" PRIu64 " belongs to uid %u; its owner freezes it", id,
                        (unsigned)handle->buffer->uid);
    else if (is_being_written(session, handle->buffer))
        (void)fault_set(fault, STATUS_INVALID_ARGUMENT, "buffer",
                        "jobs under way write buffer %" PRIu64 "; wait for them first", id);
    else
        *fault = FAULT_NONE;
    if (fault->status != STATUS_OK)
        return SESSION_E_FAULT;
    buffer_freeze(handle->buffer);
    session_answer_empty(session, request->id);
    return 0;
}

/* --- export ---------------------------------------------------------------------------------- */

static enum status
check_export(const struct handle *handle, const struct request *request, struct fault *fault)
{
    const struct buffer *buffer = handle->buffer;
    uint64_t id = request->body.buffer.id;

    if (!buffer->is_exportable)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "buffer",
                         "buffer %" PRIu64 " was made without exportable", id);
    /* Whoever holds the descriptor can write. */
    if (!handle->is_writable)
        return fault_set(fault, STATUS_PERMISSION, "buffer",
                         "buffer %" PRIu64 " is open for reading only", id);
    if (buffer->memory.state == MEMORY_LOST) /* its own: no slab is exported */
        return fault_set(fault, buffer->memory.lost_status, "buffer", "the memory is gone: %s",
                         buffer->memory.lost_reason);
    return STATUS_OK;
}

int allocate_export(struct session *session, const struct request *request, struct fault *fault)
{
    const struct link_device *device = &session->server->worker.device;
    struct handle *handle = find(session, request, fault);
    struct reply_buffer reply = {.id = request->body.buffer.id, .kind = BUFFER_DEVICE};
    int fd, r;

    if (!handle || check_export(handle, request, fault) != STATUS_OK)
        return SESSION_E_FAULT;
    r = buffer_export(handle->buffer, true, &fd);
    if (r < 0)
        return error_trace(r);
    reply.size = handle->buffer->size;
    reply.writable = true;
    reply.allocation = handle->buffer->allocation;
    (void)snprintf(reply.device, sizeof(reply.device), "%s", device->uuid);
    session_answer_buffer(session, request->id, &reply, fd);
    return 0;
}
