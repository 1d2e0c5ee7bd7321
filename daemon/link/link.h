/*
 * The link between the front and one worker: two single-producer single-consumer rings in one
 * memfd, an eventfd each way for when the other side sleeps, and a SOCK_SEQPACKET pair for what
 * carries descriptors.
 *
 * Owner: the front makes a link for each worker process and frees it after waitpid() returned for
 * that process, never before: a dying grid can still write into the memory. Rings are never reused
 * between workers. The worker attaches to the four inherited descriptors.
 *
 * Threads: each side uses its end from one thread. Memory order: slot bodies are published by the
 * store of the slot's sequence word and read after an acquire load of it; the sleep protocol
 * (announce, look again, then wait) rests on sequentially consistent accesses on both sides.
 *
 * Trust: indices are private to each side. What the peer writes is only compared with what must
 * come next, so a peer that writes nonsense can stop the link but not lead the other side outside
 * its slots, and the seals keep the memory from shrinking under the mapping.
 *
 * While neither side sleeps, a command and its completion make no system call; `system_calls`
 * counts those that were made, for the test that holds this.
 */
#pragma once

#include "../../kernels_src/abi/ring.h"
#include "../core/status.h"
#include "../core/std.h"
#include "link_message.h"

#define LINK_COMMANDS    256 /* slots; a power of two. Bounds the commands without a read answer */
#define LINK_COMPLETIONS 256 /* at least LINK_COMMANDS: a worker never waits to complete */

enum link_side {
    LINK_FRONT,
    LINK_WORKER,
};

/* What the worker inherits, by number (its argv names them). */
struct link_fds {
    int memory;           /* memfd, sealed against resizing */
    int command_event;    /* eventfd: the front wakes the worker */
    int completion_event; /* eventfd: the worker wakes the front */
    int socket;           /* this side's end of the SOCK_SEQPACKET pair */
};

struct link_memory; /* layout in link.c */

struct link {
    enum link_side side;
    struct link_memory *memory;
    struct link_fds fds;
    int peer_socket; /* front only: the worker's end until the child has it; -1 after */
    uint64_t commands_written, commands_read;
    uint64_t completions_written, completions_read;
    uint64_t messages_received;
    uint64_t system_calls; /* eventfd reads and writes and socket calls made on this side */
};

#define LINK_NULL                                                                                  \
    ((struct link){                                                                                \
        .fds = {.memory = -1, .command_event = -1, .completion_event = -1, .socket = -1},          \
        .peer_socket = -1})

int link_create(struct link *link); /* front */
/* Worker. Consumes the fds on success. LINK_E_BROKEN when the memory is not a link of this layout
 * (front and worker of two versions, after an upgrade of the binary under a running daemon). */
int link_attach(struct link *link, const struct link_fds *fds);
void link_deinit(struct link *link); /* closes and unmaps; safe on LINK_NULL */

/* --- front ----------------------------------------------------------------------------------- */

/* Commands that can be written now without waiting: LINK_COMMANDS less those whose completion was
 * not yet read here. So both rings have room by the front's own count. */
uint32_t link_room(const struct link *link);
/* Copies the command into the ring (its sequence word is set here); wakes a sleeping worker. The
 * caller checked link_room(). */
int link_submit(struct link *link, const struct gemmd_command *command);
/* Takes the next completion; false when there is none. */
bool link_complete_next(struct link *link, struct gemmd_completion *ret_completion);
/* How many commands the worker has taken so far: commands below this index count as started. Also
 * readable after the worker died. */
uint64_t link_commands_taken(const struct link *link);
/* Sleep protocol of the front: announce, and learn whether sleeping is right. When it returns true
 * the caller may block on fds.completion_event; when false there is work, do not block. After
 * waking: link_awake() (drains the eventfd). */
bool link_front_may_sleep(struct link *link);
void link_front_awake(struct link *link);
/* The worker's beat: a counter that moves while the worker's loop runs. It stands still while the
 * worker sleeps with nothing to do, and while the CPU backend computes: a watchdog looks at it only
 * for a CUDA device with commands in flight. */
uint64_t link_heartbeat(const struct link *link);
/* A counter that moves while a command does not end and the device does other things for this
 * worker: so the command hangs, and not the device. */
uint64_t link_device_answers(const struct link *link);

/* Whether it waits to be woken: until then it is at work, also on what is not answered for. */
bool link_worker_sleeps(const struct link *link);

/* --- worker ---------------------------------------------------------------------------------- */

/* Takes the next command (copied out, counted as taken); false when there is none. */
bool link_command_next(struct link *link, struct gemmd_command *ret_command);
/* Publishes a completion (its sequence word is set here); wakes a sleeping front. */
int link_complete(struct link *link, const struct gemmd_completion *completion);
bool link_worker_may_sleep(struct link *link);
void link_worker_awake(struct link *link);
void link_beat(struct link *link);
void link_device_answered(struct link *link, uint64_t answers); /* so many times until now */
/* The mapped memory, for registration with CUDA. */
void link_memory_range(const struct link *link, void **ret_base, size_t *ret_size);

/* --- both: messages with descriptors --------------------------------------------------------- */

/* Sends one message with up to LINK_FDS_MAX descriptors (not consumed). -EAGAIN (not traced) when
 * the peer does not read; LINK_E_CLOSED when it is gone. */
int link_send(struct link *link, const struct link_message *message, const int *fds, size_t n_fds);
/* True when the peer sent more than was received here: a look at shared memory, no system call. It
 * does not tell that the peer is gone: poll the socket for that before sleeping. */
bool link_message_waiting(const struct link *link);
/* Receives one message, non-blocking; its texts end in a zero. Returns 0; LINK_E_EMPTY when there
 * is none; LINK_E_CLOSED when the peer is gone; LINK_E_BROKEN for a message that is not one.
 * Descriptors are close-on-exec and belong to the caller. */
int link_receive(struct link *link,
                 struct link_message *ret_message,
                 int *ret_fds,
                 size_t *ret_n_fds);

enum {
    LINK_E_EMPTY = 1,
    LINK_E_CLOSED,
    LINK_E_BROKEN,
};
