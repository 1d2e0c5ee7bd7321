/*
 * When the loop looks at what: the ring and the finished work of the device at every turn; the
 * socket when the front's message counter moved (a look at shared memory), and whenever the loop
 * wakes from a sleep. The front sends a command that uses a mapping or kernel only after the
 * answer to the message that made it, so socket and ring need no order between them.
 *
 * When it sleeps: LOOP_SPIN_NS after the last thing that happened, with work on the device
 * LOOP_SPIN_BUSY_NS. It then looks again after a pause that grows, since the device has no way to
 * wake it; without work it sleeps until the front wakes it, without any timer.
 */
#include "worker_loop.h"

#include "../core/clock.h"
#include "../core/error.h"
#include "../core/log.h"
#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LOOP_SPIN_NS 50000 /* a few times the cost of a sleep and a wake-up */
/* The front commits the next slice of a large product, of at most 200 us, when one ends, and a
 * small product ends between two of them: a pause would be seen by both. */
#define LOOP_SPIN_BUSY_NS  400000
#define LOOP_SPIN_CPUS     4      /* with fewer, a spinner takes the CPU that the front needs */
#define LOOP_PAUSE_STEP_NS 50000  /* as long as the shortest product worth sleeping for */
#define LOOP_PAUSE_MAX_NS  250000 /* of a streamed product of 10 ms it delays the end by 1 % */
#define LOOP_BURST         4      /* commands between two looks at what has finished */
#define LOOP_SEND_WAIT_MS  100    /* between two heartbeats while the front does not read */
#define LOOP_CUBIN_MAX     (256u << 20) /* bytes: a thousand times the largest cubin there is */

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static unsigned usable_cpus(void)
{
    cpu_set_t set;

    return sched_getaffinity(0, sizeof(set), &set) == 0 ? (unsigned)CPU_COUNT(&set) : 1;
}

void worker_loop_init(struct worker_loop *loop, struct link *link, struct backend *backend)
{
    *loop = (struct worker_loop){
        .link = link,
        .backend = backend,
        .may_spin = usable_cpus() >= LOOP_SPIN_CPUS,
        .pause_ns = LOOP_PAUSE_STEP_NS,
    };
}

/* --- messages -------------------------------------------------------------------------------- */

int worker_loop_send(struct link *link, const struct link_message *message, int fd)
{
    struct pollfd wait = {.fd = link->fds.socket, .events = POLLOUT};
    int r;

    while ((r = link_send(link, message, &fd, fd >= 0 ? 1 : 0)) == -EAGAIN) {
        link_beat(link);
        (void)poll(&wait, 1, LOOP_SEND_WAIT_MS);
    }
    return error_trace(r);
}

static int answer(struct worker_loop *loop, const struct link_message *message, int fd)
{
    int r = worker_loop_send(loop->link, message, fd);

    if (r == LINK_E_CLOSED) {
        loop->is_over = true;
        return 0;
    }
    return error_trace(r);
}

static int message_map(struct worker_loop *loop, const struct link_message *request, int *fd)
{
    struct link_message reply = {.kind = LINK_MAPPED,
                                 .memory_kind = request->memory_kind,
                                 .id = request->id,
                                 .size = request->size};
    const bool creates = request->memory_kind == LINK_MEMORY_DEVICE_CREATE;
    const bool takes_none = creates || request->memory_kind == LINK_MEMORY_DEVICE_IPC;
    int r;

    if (!takes_none && *fd < 0) {
        (void)fault_set(&reply.fault, STATUS_INTERNAL, "memory",
                        "memory %" PRIu64 " came without a descriptor", request->id);
        return error_trace(answer(loop, &reply, -1));
    }
    r = loop->backend->operations->map(loop->backend, request, fd, &reply.address, &reply.fault);
    if (r < 0)
        return error_trace(r);

    return error_trace(answer(loop, &reply, r == 0 && creates ? *fd : -1));
}

static int message_unmap(struct worker_loop *loop, const struct link_message *request)
{
    const struct link_message reply = {.kind = LINK_UNMAPPED, .id = request->id};

    loop->backend->operations->unmap(loop->backend, request->id);
    return error_trace(answer(loop, &reply, -1));
}

/* Copies the cubin out: a mapping would be only as safe as whoever holds the descriptor. */
static void *cubin_read(int fd, uint64_t size)
{
    cleanup(freep) char *cubin = NULL;
    struct stat st;

    if (fd < 0 || size == 0 || size > LOOP_CUBIN_MAX || fstat(fd, &st) < 0 ||
        (uint64_t)st.st_size < size)
        return NULL;

    cubin = malloc(size);
    for (uint64_t done = 0; cubin && done < size;) {
        const ssize_t n = pread(fd, cubin + done, size - done, (off_t)done);

        if (n <= 0)
            return NULL;
        done += (uint64_t)n;
    }
    return steal(cubin, NULL);
}

static int message_load(struct worker_loop *loop, const struct link_message *request, int fd)
{
    struct link_message reply = {.kind = LINK_LOADED, .id = request->id};
    cleanup(freep) void *cubin = cubin_read(fd, request->size);
    int r = 0;

    if (!cubin)
        (void)fault_set(&reply.fault, STATUS_INTERNAL, "kernel",
                        "the cubin of %s cannot be read: %" PRIu64 " bytes were announced",
                        request->configuration, request->size);
    else
        r = loop->backend->operations->load(loop->backend, request, cubin, &reply.fault);

    if (r < 0)
        return error_trace(r);

    return error_trace(answer(loop, &reply, -1)); /* a refusal is an answer, too */
}

static int message_handle(struct worker_loop *loop, const struct link_message *message, int *fd)
{
    switch (message->kind) {
    case LINK_MAP:
        return error_trace(message_map(loop, message, fd));
    case LINK_UNMAP:
        return error_trace(message_unmap(loop, message));
    case LINK_LOAD:
        return error_trace(message_load(loop, message, *fd));
    case LINK_UNLOAD:
        loop->backend->operations->unload(loop->backend, message->id);
        return 0;
    case LINK_QUIT:
        loop->is_quitting = true;
        return 0;
    default: /* what only a worker sends: the other end is not our front */
        return error_origin(-EPROTO);
    }
}

static int messages_take(struct worker_loop *loop)
{
    while (!loop->is_over) {
        cleanup(fd_closep) int fd = -1;
        struct link_message message;
        size_t n_fds;
        int r = link_receive(loop->link, &message, &fd, &n_fds);

        link_beat(loop->link); /* a thousand mappings in a row are no hang */
        if (r == LINK_E_EMPTY)
            return 0;
        if (r == LINK_E_CLOSED)
            loop->is_over = true;
        else if (r)
            return error_fold(r);
        else if ((r = message_handle(loop, &message, &fd)) < 0)
            return error_trace(r);
        loop->active_ns = clock_now_ns();
    }
    return 0;
}

/* --- work ------------------------------------------------------------------------------------ */

static bool has_room(const struct worker_loop *loop)
{
    const struct backend *backend = loop->backend;

    return !loop->is_quitting &&
           backend->operations->pending(backend) < backend->operations->depth &&
           !backend->operations->wants_rest(backend);
}

static int commands_take(struct worker_loop *loop, bool *ret_progress)
{
    struct gemmd_command command;
    int r;

    for (int i = 0; i < LOOP_BURST && has_room(loop); i++) {
        if (!link_command_next(loop->link, &command))
            return 0;
        r = loop->backend->operations->submit(loop->backend, &command);
        if (r)
            return error_fold(r);
        *ret_progress = true;
    }
    return 0;
}

static int completions_give(struct worker_loop *loop, bool *ret_progress)
{
    struct gemmd_completion completion;
    int r;

    while ((r = loop->backend->operations->reap(loop->backend, &completion)) > 0) {
        r = link_complete(loop->link, &completion);
        if (r < 0)
            return error_trace(r);
        *ret_progress = true;
    }
    link_device_answered(loop->link, loop->backend->answers);
    return error_trace(r);
}

static int turn(struct worker_loop *loop, bool *ret_progress)
{
    int r = 0;

    link_beat(loop->link);
    if (link_message_waiting(loop->link)) {
        r = messages_take(loop);
        *ret_progress = true;
    }
    if (r == 0)
        r = commands_take(loop, ret_progress);
    if (r == 0)
        r = completions_give(loop, ret_progress);
    return error_trace(r);
}

/* --- waiting --------------------------------------------------------------------------------- */

static bool is_hot(const struct worker_loop *loop)
{
    const bool is_busy = loop->backend->operations->pending(loop->backend) > 0;

    return loop->may_spin &&
           clock_now_ns() - loop->active_ns < (is_busy ? LOOP_SPIN_BUSY_NS : LOOP_SPIN_NS);
}

/* Sleeps until a command, a message, or, with work on the device, the end of the pause. A device
 * that is full takes no command, so none is waited for then. */
static int sleep_for_work(struct worker_loop *loop)
{
    const bool is_busy = loop->backend->operations->pending(loop->backend) > 0;
    const bool wants_commands = has_room(loop);
    struct timespec pause = {.tv_nsec = loop->pause_ns};
    struct pollfd fds[] = {
        {.fd = loop->link->fds.socket, .events = POLLIN},
        {.fd = wants_commands ? loop->link->fds.command_event : -1, .events = POLLIN},
    };
    int n;

    if (wants_commands && !link_worker_may_sleep(loop->link))
        return 0;

    n = ppoll(fds, ARRAY_SIZE(fds), is_busy ? &pause : NULL, NULL);
    if (wants_commands)
        link_worker_awake(loop->link);
    if (n < 0 && errno != EINTR)
        return error_origin(-errno);

    loop->pause_ns = MIN(loop->pause_ns + LOOP_PAUSE_STEP_NS, LOOP_PAUSE_MAX_NS);
    return fds[0].revents ? error_trace(messages_take(loop)) : 0;
}

static bool is_done(const struct worker_loop *loop)
{
    return loop->is_over ||
           (loop->is_quitting && loop->backend->operations->pending(loop->backend) == 0);
}

int worker_loop_run(struct worker_loop *loop, struct fault *ret_fault)
{
    const struct backend_operations *operations = loop->backend->operations;
    int r = 0;

    while (r == 0 && !is_done(loop)) {
        bool progress = false;

        r = turn(loop, &progress);
        if (progress) {
            loop->active_ns = clock_now_ns();
            loop->pause_ns = LOOP_PAUSE_STEP_NS;
        } else if (r == 0 && (is_hot(loop) || operations->is_eager(loop->backend))) {
            relax();
        } else if (r == 0) {
            r = sleep_for_work(loop);
        }
    }
    if (r < 0)
        (void)fault_set(ret_fault, STATUS_GPU_FAULT, "", "device %s is lost: %s",
                        loop->backend->device.name, strerror(-r));
    return error_trace(r);
}
