/*
 * Messages to and from the worker: memory, kernels, hello. Order on the socket is order in the
 * worker, so an unmap needs no answer waited for: a later map finds the room that it made.
 */
#include "worker_internal.h"

#include "../core/error.h"
#include "../core/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A message that the socket did not take at once. Its descriptor is lent: there may be thousands of
 * them, and half of what the process may open is already taken by what they are of. */
struct output {
    struct list link;
    struct link_message message;
    int fd;                /* -1: none */
    struct memory *memory; /* that lends it, and knows of it as `unsent`; NULL: no memory does */
    bool is_left;          /* by a memory that is gone: closed here */
};

static void output_free(struct output *output)
{
    list_unlink(&output->link);
    if (output->memory)
        output->memory->unsent = NULL;
    if (output->is_left)
        fd_closep(&output->fd);
    free(output);
}

static int output_queue(struct worker_process *worker,
                        const struct link_message *message,
                        int fd,
                        struct memory *memory)
{
    struct output *output = malloc(sizeof(*output));

    if (!output)
        return error_origin(-ENOMEM);
    *output = (struct output){.message = *message, .fd = fd, .memory = memory};
    list_init(&output->link);
    if (memory)
        memory->unsent = output;
    list_append(&worker->outputs, &output->link);
    worker_watch_socket(worker);
    return 0;
}

/* The message still goes: what follows it, and the answer to it, are counted on. */
static void output_leave(struct output *output)
{
    output->fd = steal(output->memory->fd, -1);
    output->is_left = true;
    output->memory->unsent = NULL;
    output->memory = NULL;
}

static int send_or_queue(struct worker_process *worker,
                         const struct link_message *message,
                         int fd,
                         struct memory *memory)
{
    int r;

    worker_unpark(worker);
    worker_watch(worker);
    if (!list_is_empty(&worker->outputs))
        return output_queue(worker, message, fd, memory);

    r = link_send(&worker->link, message, &fd, fd >= 0 ? 1 : 0);
    if (r == -EAGAIN)
        return output_queue(worker, message, fd, memory);
    /* A worker that is dying shows as EPIPE: its end is told by waitpid, and all it held is asked
     * for again from the next one. */
    if (r < 0)
        log_debug("worker=%" PRId64 " send=failed error=%d, ignoring", worker->pid, -r);
    return 0;
}

int worker_send(struct worker_process *worker, const struct link_message *message, int fd)
{
    return send_or_queue(worker, message, fd, NULL);
}

void worker_outputs_flush(struct worker_process *worker)
{
    list_for_each_safe(cursor, following, &worker->outputs)
    {
        struct output *output = container_of(cursor, struct output, link);
        int r = link_send(&worker->link, &output->message, &output->fd, output->fd >= 0 ? 1 : 0);

        if (r == -EAGAIN)
            return;
        output_free(output);
    }
    worker_watch_socket(worker);
}

void worker_outputs_clear(struct worker_process *worker)
{
    list_for_each_safe(cursor, following, &worker->outputs)
    {
        output_free(container_of(cursor, struct output, link));
    }
}

/* --- memory ---------------------------------------------------------------------------------- */

static bool worker_takes_messages(const struct worker_process *worker)
{
    return (worker->state == WORKER_RESTORING || worker->state == WORKER_READY) && !worker->is_lost;
}

static int memory_ask(struct worker_process *worker, struct memory *memory)
{
    struct link_message message = {
        .kind = LINK_MAP,
        .memory_kind = memory->kind,
        .id = memory->id,
        .size = memory->size,
        .offset = memory->offset,
        .allocation = memory->allocation,
        .writable = memory->is_writable,
    };
    int r;

    if (memory->kind == LINK_MEMORY_DEVICE_CREATE && memory->fd >= 0)
        message.memory_kind = LINK_MEMORY_DEVICE_IMPORT;
    memcpy(message.handle, memory->handle, sizeof(message.handle));
    r = send_or_queue(worker, &message, memory->fd, memory);
    if (r < 0)
        return error_trace(r);
    memory->is_asked = true;
    worker->answers_expected++;
    worker_watch(worker);
    return 0;
}

static void memory_lose(struct memory *memory, enum status status, const char *reason)
{
    memory->state = MEMORY_LOST;
    memory->lost_status = status;
    (void)snprintf(memory->lost_argument, sizeof(memory->lost_argument), "size");
    (void)snprintf(memory->lost_reason, sizeof(memory->lost_reason), "%.*s",
                   (int)sizeof(memory->lost_reason) - 1, reason);
}

static bool is_clients_own(const struct memory *memory)
{
    return memory->kind == LINK_MEMORY_DEVICE_FOREIGN || memory->kind == LINK_MEMORY_DEVICE_IPC;
}

/* What an earlier worker had is lost to its users; what is new was not to be had. */
static void memory_refused(struct memory *memory, enum status status, const char *reason)
{
    memory_lose(memory, memory->was_mapped ? STATUS_BUFFER_LOST : status, reason);
    if (is_clients_own(memory) && !memory->was_mapped)
        return; /* whatever a client says it is: the answer tells, the log would be its own */
    log_warning("memory=%" PRIu64 " size=%" PRIu64 " state=lost status=%s reason=\"%s\"",
                memory->id, memory->size, status_name(memory->lost_status), memory->lost_reason);
}

int worker_memory_add(struct worker_process *worker, struct memory *memory)
{
    memory->id = worker->next_id++;
    memory->state = MEMORY_WANTED;
    memory->is_asked = false;
    memory->unsent = NULL;
    memory->address = 0;
    list_append(&worker->memories, &memory->link);
    if (worker_takes_messages(worker))
        return error_trace(memory_ask(worker, memory));
    return 0;
}

void worker_memory_remove(struct worker_process *worker, struct memory *memory)
{
    struct link_message message = {.kind = LINK_UNMAP, .id = memory->id};

    list_unlink(&memory->link);
    if (memory->is_asked && worker_takes_messages(worker))
        (void)worker_send(worker, &message, -1);
    if (memory->unsent)
        output_leave(memory->unsent);
    fd_closep(&memory->fd);
}

uint64_t worker_memory_under_way(const struct worker_process *worker)
{
    uint64_t bytes = 0;

    list_for_each(cursor, &worker->memories)
    {
        const struct memory *memory = container_of(cursor, struct memory, link);

        if (memory->is_asked && memory->state == MEMORY_WANTED)
            bytes += memory->size;
    }
    return bytes;
}

/* The oldest mapping without an answer, when the worker had nothing else to die of. */
static struct memory *memory_suspect(struct worker_process *worker)
{
    if (worker->state == WORKER_QUITTING || worker->in_flight > 0 || worker->loads_expected > 0)
        return NULL;
    list_for_each(cursor, &worker->memories)
    {
        struct memory *memory = container_of(cursor, struct memory, link);

        if (memory->is_asked && memory->state == MEMORY_WANTED)
            return memory;
    }
    return NULL;
}

/* Asked for again and again, it would take one worker after the other with it. */
static void memory_blame(struct memory *memory, uint32_t half_deaths)
{
    memory->half_deaths += half_deaths;
    if (memory->suspected && half_deaths > 1)
        memory->suspected(memory);
    if (memory->half_deaths < 2 * WORKER_ASK_DEATHS)
        return;
    memory_refused(memory, STATUS_GPU_FAULT, "the worker died each time it mapped this memory");
    if (memory->changed)
        memory->changed(memory); /* may free it */
}

void worker_memories_forget(struct worker_process *worker)
{
    struct memory *suspect = memory_suspect(worker);

    list_for_each(cursor, &worker->memories)
    {
        struct memory *memory = container_of(cursor, struct memory, link);

        memory->is_asked = false;
        if (memory->state == MEMORY_MAPPED)
            memory->state = MEMORY_WANTED;
    }
    if (suspect)
        memory_blame(suspect, worker_half_deaths(worker));
}

static struct memory *memory_find(struct worker_process *worker, uint64_t id)
{
    list_for_each(cursor, &worker->memories)
    {
        struct memory *memory = container_of(cursor, struct memory, link);

        if (memory->id == id)
            return memory;
    }
    return NULL;
}

static void
memory_mapped(struct worker_process *worker, const struct link_message *message, int *fd)
{
    struct memory *memory = memory_find(worker, message->id);
    const bool is_known = memory != NULL;

    if (memory && message->fault.status == STATUS_OK) {
        if (memory->fd < 0 && memory->kind == LINK_MEMORY_DEVICE_CREATE)
            memory->fd = steal(*fd, -1);
        memory->address = message->address;
        memory->state = MEMORY_MAPPED;
        memory->was_mapped = true;
        memory->half_deaths = 0;
    } else if (memory) {
        memory_refused(memory, message->fault.status, message->fault.message);
        if (is_clients_own(memory) && message->fault.argument[0] != '\0')
            (void)snprintf(memory->lost_argument, sizeof(memory->lost_argument), "%.7s",
                           message->fault.argument);
    }
    if (memory && memory->changed)
        memory->changed(memory); /* may free it; so may what an answer makes ready */
    worker_answered(worker);
    if (is_known)
        worker->operations->mapped(worker);
}

static void restore(struct worker_process *worker)
{
    list_for_each_safe(cursor, following, &worker->memories)
    {
        struct memory *memory = container_of(cursor, struct memory, link);

        if (memory->state != MEMORY_WANTED || memory_ask(worker, memory) == 0)
            continue;
        memory_lose(memory, STATUS_OUT_OF_MEMORY, "the daemon has no memory to restore it");
        if (memory->changed)
            memory->changed(memory); /* may free it */
    }
}

int worker_load(struct worker_process *worker, const struct link_message *message, int fd)
{
    struct link_message load = *message;
    int r;

    if (!worker_takes_messages(worker))
        return 0; /* the next worker gets it when it has started */
    load.kind = LINK_LOAD;
    r = worker_send(worker, &load, fd);
    if (r < 0)
        return error_trace(r);
    worker->answers_expected++;
    worker->loads_expected++;
    worker_watch(worker);
    return 0;
}

/* --- arriving -------------------------------------------------------------------------------- */

static void dispatch(struct worker_process *worker, const struct link_message *message, int *fd)
{
    switch (message->kind) {
    case LINK_HELLO:
        worker_hello(worker, message);
        if (worker->state == WORKER_RESTORING)
            restore(worker);
        /* It answers in order. Who asks for memory meanwhile, and goes on to, keeps nobody waiting.
         */
        worker->restoring = worker->answers_expected;
        worker_answered(worker);
        break;
    case LINK_MAPPED:
        memory_mapped(worker, message, fd);
        break;
    case LINK_UNMAPPED:
        break;
    case LINK_LOADED:
        worker->loads_expected -= MIN(worker->loads_expected, 1u);
        worker_answered(worker);
        worker->operations->loaded(worker, message->id, &message->fault);
        break;
    case LINK_LOST:
        worker_lose(worker, message->fault.status, message->fault.message);
        break;
    default:
        worker_lose(worker, STATUS_INTERNAL, "the worker sent a message of unknown kind");
        break;
    }
}

void worker_message(struct worker_process *worker, const struct link_message *message)
{
    int fd = -1;

    dispatch(worker, message, &fd);
}

void worker_messages_receive(struct worker_process *worker)
{
    for (;;) {
        struct link_message message;
        cleanup(fd_closep) int fd = -1;
        size_t n_fds = 0;
        int r = link_receive(&worker->link, &message, &fd, &n_fds);

        if (r == LINK_E_EMPTY)
            return;
        if (r == LINK_E_CLOSED) {
            worker_lose(worker, STATUS_INTERNAL, "the worker closed its end");
            return;
        }
        if (r != 0) {
            worker_lose(worker, STATUS_INTERNAL, "the worker's message is not one");
            return;
        }
        dispatch(worker, &message, &fd);
    }
}
