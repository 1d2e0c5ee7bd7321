/*
 * The link's memory, its two rings and the sleep protocol. Messages are in link_socket.c.
 *
 * Why no wake-up is lost: the sleeper stores its flag, then loads the next sequence word; the
 * writer stores the sequence word, then loads the flag. All four are sequentially consistent, so at
 * least one of the two sees the other's store: the sleeper stays up, or the writer signals.
 * Accesses instead of fences, since ThreadSanitizer understands only these, and on x86-64 both come
 * to one locked instruction.
 */
#include "link.h"

#include "../core/error.h"
#include "link_memory.h"
#include <fcntl.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINK_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

static int map_memory(struct link *link)
{
    void *memory = mmap(NULL, sizeof(struct link_memory), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_POPULATE, link->fds.memory, 0);

    if (memory == MAP_FAILED)
        return error_origin(-errno);

    link->memory = memory;
    return 0;
}

static int create_memory(struct link *link)
{
    int r;

    link->fds.memory = memfd_create("gemmd-link", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (link->fds.memory < 0)
        return error_origin(-errno);

    if (ftruncate(link->fds.memory, sizeof(struct link_memory)) < 0)
        return error_origin(-errno);

    if (fcntl(link->fds.memory, F_ADD_SEALS, LINK_SEALS) < 0)
        return error_origin(-errno);

    r = map_memory(link);
    if (r < 0)
        return error_trace(r);

    link->memory->magic = LINK_MAGIC;
    link->memory->size = sizeof(struct link_memory);
    return 0;
}

static int create_channels(struct link *link)
{
    int pair[2];

    link->fds.command_event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (link->fds.command_event < 0)
        return error_origin(-errno);

    link->fds.completion_event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (link->fds.completion_event < 0)
        return error_origin(-errno);

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
        return error_origin(-errno);

    link->fds.socket = pair[0];
    link->peer_socket = pair[1];
    return 0;
}

int link_create(struct link *link)
{
    cleanup(link_deinit) struct link made = LINK_NULL;
    int r;

    made.side = LINK_FRONT;
    r = create_memory(&made);
    if (r < 0)
        return error_trace(r);

    r = create_channels(&made);
    if (r < 0)
        return error_trace(r);

    *link = steal(made, LINK_NULL);
    return 0;
}

/* True when the memfd cannot shrink under the mapping and has the size this code was built for. */
static bool memory_is_ours(int fd)
{
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);

    return seals >= 0 && (seals & LINK_SEALS) == LINK_SEALS && fstat(fd, &st) == 0 &&
           st.st_size == (off_t)sizeof(struct link_memory);
}

int link_attach(struct link *link, const struct link_fds *fds)
{
    struct link made = LINK_NULL;
    int r;

    if (!memory_is_ours(fds->memory))
        return LINK_E_BROKEN;

    made.side = LINK_WORKER;
    made.fds = *fds;
    r = map_memory(&made);
    if (r < 0)
        return error_trace(r);

    if (made.memory->magic != LINK_MAGIC || made.memory->size != sizeof(struct link_memory)) {
        (void)munmap(made.memory, sizeof(struct link_memory));
        return LINK_E_BROKEN;
    }

    /* They came through exec without the flag; what this process may start gets none of them. */
    (void)fcntl(fds->memory, F_SETFD, FD_CLOEXEC);
    (void)fcntl(fds->command_event, F_SETFD, FD_CLOEXEC);
    (void)fcntl(fds->completion_event, F_SETFD, FD_CLOEXEC);
    (void)fcntl(fds->socket, F_SETFD, FD_CLOEXEC);

    *link = made;
    return 0;
}

void link_deinit(struct link *link)
{
    if (link->memory)
        (void)munmap(link->memory, sizeof(struct link_memory));
    fd_closep(&link->fds.memory);
    fd_closep(&link->fds.command_event);
    fd_closep(&link->fds.completion_event);
    fd_closep(&link->fds.socket);
    fd_closep(&link->peer_socket);
    *link = LINK_NULL;
}

/* --- the sleep protocol, the same on both sides ---------------------------------------------- */

static int wake(struct link *link, uint32_t *sleeps, int event)
{
    const uint64_t one = 1;

    if (!__atomic_load_n(sleeps, __ATOMIC_SEQ_CST) ||
        !__atomic_exchange_n(sleeps, 0, __ATOMIC_SEQ_CST))
        return 0;

    link->system_calls++;
    /* EAGAIN: the counter is full, hence readable, hence the sleeper wakes. */
    if (write(event, &one, sizeof(one)) < 0 && errno != EAGAIN)
        return error_origin(-errno);

    return 0;
}

static bool may_sleep(uint32_t *sleeps, const gemmd_u64 *sequence, uint64_t awaited)
{
    __atomic_store_n(sleeps, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(sequence, __ATOMIC_SEQ_CST) != awaited)
        return true;

    /* The writer may have signalled already: then the next sleep ends once for nothing. */
    __atomic_store_n(sleeps, 0, __ATOMIC_SEQ_CST);
    return false;
}

static void awake(struct link *link, uint32_t *sleeps, int event)
{
    uint64_t count;

    __atomic_store_n(sleeps, 0, __ATOMIC_SEQ_CST);
    link->system_calls++;
    (void)!read(event, &count, sizeof(count)); /* EAGAIN: something else ended the wait */
}

/* --- front ----------------------------------------------------------------------------------- */

static struct gemmd_command *command_slot(const struct link *link, uint64_t index)
{
    return &link->memory->commands[index & (LINK_COMMANDS - 1)];
}

static struct gemmd_completion *completion_slot(const struct link *link, uint64_t index)
{
    return &link->memory->completions[index & (LINK_COMPLETIONS - 1)];
}

uint32_t link_room(const struct link *link)
{
    return LINK_COMMANDS - (uint32_t)(link->commands_written - link->completions_read);
}

/* The body first, the sequence word last: see kernels_src/abi/ring.h. */
static void publish(void *slot, const void *body, size_t size, uint64_t sequence)
{
    const size_t head = sizeof(sequence);

    memcpy((char *)slot + head, (const char *)body + head, size - head);
    __atomic_store_n((uint64_t *)slot, sequence, __ATOMIC_SEQ_CST);
}

int link_submit(struct link *link, const struct gemmd_command *command)
{
    const uint64_t index = link->commands_written;

    assert(link->side == LINK_FRONT && link_room(link) > 0);

    link->commands_written++;
    publish(command_slot(link, index), command, sizeof(*command), index + 1);
    return error_trace(wake(link, &link->memory->worker_sleeps, link->fds.command_event));
}

bool link_complete_next(struct link *link, struct gemmd_completion *ret_completion)
{
    const uint64_t index = link->completions_read;
    const struct gemmd_completion *slot = completion_slot(link, index);

    /* An answer to nothing is nonsense, and taking it would make link_room() wrong. */
    if (index == link->commands_written ||
        __atomic_load_n(&slot->sequence, __ATOMIC_ACQUIRE) != index + 1)
        return false;

    *ret_completion = *slot;
    link->completions_read++;
    return true;
}

uint64_t link_commands_taken(const struct link *link)
{
    const uint64_t taken = __atomic_load_n(&link->memory->commands_taken, __ATOMIC_ACQUIRE);

    return MIN(taken, link->commands_written);
}

bool link_front_may_sleep(struct link *link)
{
    const uint64_t index = link->completions_read;
    const bool looks_empty =
        may_sleep(&link->memory->front_sleeps, &completion_slot(link, index)->sequence, index + 1);

    /* An answer to nothing will not be taken, so it must not keep the front awake either. */
    return looks_empty || index == link->commands_written;
}

void link_front_awake(struct link *link)
{
    awake(link, &link->memory->front_sleeps, link->fds.completion_event);
}

uint64_t link_heartbeat(const struct link *link)
{
    return __atomic_load_n(&link->memory->heartbeat, __ATOMIC_RELAXED);
}

uint64_t link_device_answers(const struct link *link)
{
    return __atomic_load_n(&link->memory->device_answers, __ATOMIC_RELAXED);
}

bool link_worker_sleeps(const struct link *link)
{
    return __atomic_load_n(&link->memory->worker_sleeps, __ATOMIC_SEQ_CST);
}

/* --- worker ---------------------------------------------------------------------------------- */

bool link_command_next(struct link *link, struct gemmd_command *ret_command)
{
    const uint64_t index = link->commands_read;
    const struct gemmd_command *slot = command_slot(link, index);

    if (__atomic_load_n(&slot->sequence, __ATOMIC_ACQUIRE) != index + 1)
        return false;

    *ret_command = *slot;
    link->commands_read++;
    __atomic_store_n(&link->memory->commands_taken, link->commands_read, __ATOMIC_RELEASE);
    return true;
}

int link_complete(struct link *link, const struct gemmd_completion *completion)
{
    const uint64_t index = link->completions_written;

    assert(link->side == LINK_WORKER && index < link->commands_read);

    link->completions_written++;
    publish(completion_slot(link, index), completion, sizeof(*completion), index + 1);
    return error_trace(wake(link, &link->memory->front_sleeps, link->fds.completion_event));
}

bool link_worker_may_sleep(struct link *link)
{
    const uint64_t index = link->commands_read;

    return may_sleep(&link->memory->worker_sleeps, &command_slot(link, index)->sequence, index + 1);
}

void link_worker_awake(struct link *link)
{
    awake(link, &link->memory->worker_sleeps, link->fds.command_event);
}

void link_beat(struct link *link)
{
    const uint64_t beat = __atomic_load_n(&link->memory->heartbeat, __ATOMIC_RELAXED);

    __atomic_store_n(&link->memory->heartbeat, beat + 1, __ATOMIC_RELAXED);
}

void link_device_answered(struct link *link, uint64_t answers)
{
    __atomic_store_n(&link->memory->device_answers, answers, __ATOMIC_RELAXED);
}

void link_memory_range(const struct link *link, void **ret_base, size_t *ret_size)
{
    *ret_base = link->memory;
    *ret_size = sizeof(*link->memory);
}
