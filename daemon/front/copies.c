#include "copies.h"

#include "../core/clock.h"
#include "../core/error.h"
#include "server.h"

static void job_freep(struct job **job)
{
    *job = job_free(*job);
}

void copies_init(struct copies *copies)
{
    *copies = (struct copies){0};
    list_init(&copies->used);
    stream_init(&copies->stream);
}

static struct buffer *original_of(struct list *link)
{
    return container_of(link, struct buffer, copy.link);
}

static bool is_idle(const struct buffer *original)
{
    return original->copy.state == COPY_READY && original->copy.memory->references == 1;
}

void copies_end(struct copies *copies)
{
    list_for_each_safe(cursor, following, &copies->used)
    {
        buffer_drop_copy(original_of(cursor));
    }
}

bool copies_release(struct copies *copies, const uid_t *uid)
{
    bool is_any = false;

    list_for_each_safe(cursor, following, &copies->used)
    {
        struct buffer *original = original_of(cursor);

        if (!is_idle(original) || (uid && *uid != original->uid))
            continue;
        buffer_drop_copy(original);
        is_any = true;
    }
    return is_any;
}

/* False when what is in use leaves too little. */
static bool make_room(struct copies *copies, uint64_t bytes)
{
    if (bytes > copies->limit)
        return false;
    list_for_each_safe(cursor, following, &copies->used)
    {
        struct buffer *original = original_of(cursor);

        if (copies->bytes + bytes <= copies->limit)
            return true;
        if (is_idle(original))
            buffer_drop_copy(original);
    }
    return copies->bytes + bytes <= copies->limit;
}

/* --- making ---------------------------------------------------------------------------------- */

static void give_up(struct buffer *original)
{
    buffer_drop_copy(original);
    original->copy.not_before_ns = clock_now_ns() + COPIES_RETRY_NS;
}

static void copied(struct job *job, const struct fault *fault)
{
    struct server *server = job->context;
    struct buffer *original = job->operand[OPERAND_A].buffer;

    if (original->copy.memory != job->operand[OPERAND_D].buffer)
        return; /* dropped meanwhile */
    if (fault->status != STATUS_OK) {
        give_up(original);
        return;
    }
    original->copy.state = COPY_READY;
    server->copies.made++;
}

/* Behind what clients wait for, where the worker can beside it. */
static int fill(struct server *server, struct buffer *original)
{
    cleanup(job_freep) struct job *job = job_new();
    struct fault fault;
    int r;

    if (!job)
        return error_origin(-ENOMEM);
    r = quota_charge(&server->quota, original->uid, QUOTA_JOBS, 1, &job->charge, &fault);
    if (r != 0)
        return r;
    job->method = METHOD_BUFFER_COPY;
    job->kind = JOB_COPY;
    job->priority = -1;
    job->received_ns = clock_now_ns();
    job->ended = copied;
    job->context = server;
    job->predicted_seconds = 2e-6 + (double)original->size / QUEUE_BUS_BYTES_PER_SECOND;
    job->track = original->size < QUEUE_COPY_BYTES ? GEMMD_TRACK_MAIN : GEMMD_TRACK_IN;
    job_use_buffer(job, OPERAND_A, buffer_ref(original), 0, original->size);
    job_use_buffer(job, OPERAND_D, buffer_ref(original->copy.memory), 0, original->size);
    original->copy.state = COPY_FILLING;
    queue_submit(&server->queue, steal(job, NULL), &server->copies.stream);
    return 0;
}

static void memory_changed(struct buffer *memory)
{
    struct server *server = container_of(memory->table, struct server, buffers);
    struct buffer *original = memory->copy_of;

    if (!original || original->copy.state != COPY_WANTED)
        return; /* a later worker has mapped it again, or not: copies_use() sees that */
    if (buffer_memory(memory)->state == MEMORY_LOST || fill(server, original) != 0)
        give_up(original);
}

static void begin(struct server *server, struct buffer *original)
{
    struct copies *copies = &server->copies;
    struct copy *copy = &original->copy;
    const struct buffer_request wanted = {
        .kind = BUFFER_DEVICE,
        .size = original->size,
        .mode = 0600,
        .is_writable = true,
        .uid = original->uid,
        .gid = original->gid,
        .fd = -1,
    };
    struct fault fault;

    copy->not_before_ns = clock_now_ns() + COPIES_RETRY_NS;
    if (!make_room(copies, original->size) ||
        buffer_new(&server->buffers, &wanted, memory_changed, &copy->memory, &fault) != 0)
        return;
    copy->memory->is_made = true; /* no request of a client waits for it */
    copy->memory->copy_of = original;
    copy->copies = copies;
    copy->state = COPY_WANTED;
    copies->bytes += copy->memory->allocation;
    list_append(&copies->used, &copy->link);
    if (buffer_memory(copy->memory)->state == MEMORY_MAPPED)
        memory_changed(copy->memory);
}

/* --- using ----------------------------------------------------------------------------------- */

struct buffer *copies_use(struct server *server, struct buffer *buffer)
{
    struct copy *copy = &buffer->copy;

    if (!buffer->is_frozen || server->device.is_cpu)
        return buffer;
    if (copy->state == COPY_READY && buffer_memory(copy->memory)->state == MEMORY_LOST)
        give_up(buffer);
    if (copy->state == COPY_NONE && clock_now_ns() >= copy->not_before_ns)
        begin(server, buffer);
    if (copy->state != COPY_READY)
        return buffer;
    list_unlink(&copy->link);
    list_append(&server->copies.used, &copy->link);
    server->copies.hits++;
    return copy->memory;
}
