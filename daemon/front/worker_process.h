/*
 * The worker process and what it knows: spawned by exec of this binary, fed through a link, mourned
 * after waitpid, replaced by another that gets the same memory.
 *
 * Life: DOWN -> STARTING (spawned) -> RESTORING (said hello; memory is mapped and kernels are
 * loaded again) -> READY (commands may be committed) -> DOWN (reaped) ...; QUITTING at the end.
 * A link belongs to one process: it is made before the spawn and freed after waitpid() returned,
 * since a dying grid can still write into it.
 *
 * A second process may stand by (worker_spare.c), which has a device and nothing else yet: it takes
 * the place of one that died, after waitpid().
 *
 * Every piece of memory that jobs name is a `struct memory` in the worker's list, and its
 * descriptor is held here, by the front: that is why it outlives the worker.
 *
 * Owner: the server, by value. Thread: loop.
 */
#pragma once

#include "../core/list.h"
#include "../link/link.h"
#include "worker_recovery.h"
#include <uv.h>

#define WORKER_START_ATTEMPTS 5 /* deaths in a row, without a job taken, before we give up */
/* Who dies later, idle, had started well; but for the first, of which no device is known yet. */
#define WORKER_STARTED_NS 10000000000ull
/* Of workers in a row while they map or load the same, after which that is not asked for again. One
 * that waited in the kernel (below) may have waited for others: it counts for half of one. */
#define WORKER_ASK_DEATHS 2
#define WORKER_QUIT_MS    5000 /* from LINK_QUIT to SIGKILL */
#define WORKER_LOOK_MS    100  /* between two looks at a worker that has something to do */
/* Looks without a heartbeat, after which it hangs. With commands alone a millisecond is usual.
 * While it maps, loads or computes: a mapping of 64 GiB takes 3 s and is no hang; and before its
 * first command has ended, since the driver's first calls may wait for a device that others have.
 * In the kernel: NVIDIA's driver has a lock for all processes of the machine, which others may keep
 * for long, and who waits for it cannot be ended before either. Looks that found the worker there
 * count for no other bound. */
#define WORKER_BEATS_MISSED         6
#define WORKER_BEATS_MISSED_MAPPING 100
#define WORKER_BEATS_MISSED_KERNEL  600
#define WORKER_BEATS_MISSED_CPU     200 /* the CPU's shares the processors with everybody */
#define WORKER_FILL_BYTES           (16ull << 20) /* per look: a CPU worker fills a GiB in 0.3 s */
#define WORKER_DOUBLINGS            3             /* worker_patience() */
#define WORKER_START_S              60 /* from spawn to hello: CUDA's start on a large machine takes 10 */
#define WORKER_DYING_S              5 /* from "the device is lost" to SIGKILL; reaping takes 1.5 */
#define WORKER_PARK_MS              1000 /* idle for so long, it is stopped: worker_park.c */
/* A spare worker costs the memory of its context, about half a GiB: where that is a small part. */
#define WORKER_SPARE_MEMORY  (32ull << 30)
#define WORKER_SPARE_WAIT_MS 2000  /* for a spare that is starting; it takes 0.4 s */
#define WORKER_SPIN_NS       50000 /* polling after the last event: less than two wake-ups cost */

enum memory_state {
    MEMORY_WANTED, /* asked for, or waiting for a worker to ask */
    MEMORY_MAPPED, /* `address` is good in the current worker */
    MEMORY_LOST,   /* `fault` says why; it never comes back */
};

struct output;

/* Memory that jobs may name. Embedded in its owner (a buffer, a staging chunk). */
struct memory {
    struct list link;      /* in worker_process.memories */
    struct output *unsent; /* its LINK_MAP while the socket does not take it; else NULL */
    uint64_t id;
    enum link_memory_kind kind; /* HOST, DEVICE_CREATE, or a client's: DEVICE_FOREIGN, _IPC */
    enum memory_state state;
    int fd; /* owned; -1 for device memory that does not exist yet, and for a legacy handle */
    uint64_t size;
    uint64_t offset;                 /* a client's: where in its allocation it begins */
    uint64_t allocation;             /* and the bytes of that */
    uint8_t handle[LINK_IPC_HANDLE]; /* DEVICE_IPC */
    bool is_writable;
    bool is_asked;        /* the current worker got a LINK_MAP for it */
    bool was_mapped;      /* by this worker or an earlier one */
    uint32_t half_deaths; /* of workers that were mapping it */
    uint64_t address;
    void (*changed)(struct memory *memory); /* the owner's, after each MAPPED or LOST; or NULL */
    /* A worker died that was mapping it and had nothing else to die of; or NULL. */
    void (*suspected)(struct memory *memory);
    enum status lost_status;
    char lost_argument[8]; /* whose value the worker refused: "size" unless a client's memory */
    char lost_reason[160];
};

enum worker_state {
    WORKER_DOWN,
    WORKER_STARTING,
    WORKER_RESTORING,
    WORKER_READY,
    WORKER_QUITTING,
    WORKER_CLOSED,
};

struct worker_process;

/* libuv's side of one process: open until each of the three has been closed. */
struct worker_handles {
    struct worker_process *worker;
    uv_process_t process;
    uv_poll_t socket_poll, event_poll;
    bool is_open;
    uint32_t closing;
    void (*closed)(struct worker_handles *handles);
};

enum spare_state {
    SPARE_NONE,
    SPARE_STARTING,
    SPARE_READY,   /* it said hello, and is stopped until it is needed */
    SPARE_REFUSED, /* it has no device, or said no hello: killed, and nobody's worker */
    SPARE_ENDING,  /* its handles are being closed */
};

struct worker_spare {
    enum spare_state state;
    struct worker_handles *handles;
    struct link link;
    int64_t pid;
    struct link_message hello;
    uv_timer_t timer; /* patience with one that is starting */
    bool is_late;
};

/* Why the front ends a worker that does not end by itself. */
enum worker_verdict {
    WORKER_IS_WELL,
    WORKER_JOB_HANGS,    /* while the device does other things */
    WORKER_DEVICE_STILL, /* the device does nothing for it: no job's doing */
};

struct worker_operations {
    /* The device is known; kernels are to be loaded again with worker_load(). */
    void (*started)(struct worker_process *worker);
    /* Everything is restored: commands may be committed. */
    void (*ready)(struct worker_process *worker);
    void (*completed)(struct worker_process *worker, const struct gemmd_completion *completion);
    /* Called each WORKER_LOOK_MS while commands are in flight. */
    enum worker_verdict (*judge)(struct worker_process *worker);
    /* worker_is_covered() may be another now. Only for a CUDA device. */
    void (*covered)(struct worker_process *worker);
    /* Some memory is MAPPED or LOST now. */
    void (*mapped)(struct worker_process *worker);
    void (*loaded)(struct worker_process *worker, uint64_t kernel, const struct fault *fault);
    /* Reaped, completions drained: commands with an index below `taken` had been taken. */
    void (*died)(struct worker_process *worker, uint64_t taken);
    /* There will be no worker: the daemon ends. */
    void (*failed)(struct worker_process *worker, const struct fault *fault);
    /* After worker_close(): no handle is open any more. */
    void (*closed)(struct worker_process *worker);
};

struct worker_process {
    const struct worker_operations *operations;
    uv_loop_t *loop;
    const char *selector; /* what --device said */
    uint64_t scratch;     /* what --scratch-size said; 0: nothing */
    char pinned[64];      /* the device of the first hello: every later worker gets it, or none */
    enum worker_state state;
    struct link link;
    struct link_device device; /* of the last hello */
    bool is_device_known;
    int64_t pid; /* 0: none */

    struct worker_handles places[2]; /* for the worker and the spare, in turns */
    struct worker_handles *handles;  /* the worker's */
    struct worker_spare spare;
    uv_timer_t timer;    /* backoff before a start, or patience while quitting */
    uv_timer_t watchdog; /* active while something is due from the worker, and until it is parked */
    uv_prepare_t prepare;
    uv_check_t check;
    uv_idle_t idle;
    uint32_t open_handles; /* at the end: of those that live longer than a process */

    struct list memories; /* struct memory */
    struct list outputs;  /* messages that the socket did not take yet */
    uint64_t next_id;
    uint64_t answers_expected; /* LINK_MAPPED and LINK_LOADED under way */
    uint64_t loads_expected;   /* of those, LINK_LOADED */
    uint64_t restoring;        /* of those, to what was asked for in answer to its hello */
    bool has_completed;        /* a command of this process */
    uint32_t vain_deaths;      /* of workers in a row, since when nothing completed */
    enum worker_verdict verdict;
    bool is_lost; /* said so, or broke the protocol: `lost` is logged */
    struct fault lost;

    uint32_t in_flight; /* commands without completion */
    bool may_spin, is_asleep;
    uint64_t heartbeat; /* as the watchdog saw it last */
    uint32_t beats_missed, dying_looks, idle_looks;
    uint32_t kernel_looks; /* of beats_missed, those that found it waiting in the kernel */
    bool is_parked;
    uint64_t active_ns, started_ns; /* last event; last spawn */

    uint64_t deaths, starts, system_calls; /* system_calls: of links that are gone */
    uint32_t failed_starts;                /* in a row */
    char died_of[256];
    struct recovery recovery; /* the last */
};

int worker_init(struct worker_process *worker,
                uv_loop_t *loop,
                const char *selector,
                const struct worker_operations *operations);
/* Spawns; `failed` tells when that cannot be done. */
void worker_start(struct worker_process *worker);
/* Ends the process in order (SIGKILL when it does not go), then closes all handles. */
void worker_close(struct worker_process *worker);
void worker_deinit(struct worker_process *worker);

bool worker_is_ready(const struct worker_process *worker);
/* False while it would take a start to replace this worker, and a spare is about to stand by: what
 * may well take the worker with it can wait for that. */
bool worker_is_covered(const struct worker_process *worker);
/* "ready", or "parked" for a ready one that is stopped; and so on. */
const char *worker_state_name(const struct worker_process *worker);
const char *worker_spare_name(const struct worker_process *worker);
/* How many times as long as at first it is waited for: twice with each worker that died in vain
 * after the first, up to 2^WORKER_DOUBLINGS, until something completes. What makes a machine slow
 * does not end with a worker, and the next one has to start first. */
uint32_t worker_patience(const struct worker_process *worker);

/* --- memory ---------------------------------------------------------------------------------- */

/* Enters the memory (id and state are set here) and asks the worker for it; `mapped` tells. The
 * descriptor stays the memory's own. */
int worker_memory_add(struct worker_process *worker, struct memory *memory);
/* Forgets it, tells the worker and closes the descriptor. No job may use it. */
void worker_memory_remove(struct worker_process *worker, struct memory *memory);

/* --- kernels and commands -------------------------------------------------------------------- */

/* Sends LINK_LOAD; `message` has everything but the kind. The cubin's descriptor is not consumed,
 * and stays open until the load was answered or the worker has died.
 * Only when the device is known and no earlier load of this id is under way. */
int worker_load(struct worker_process *worker, const struct link_message *message, int fd);
/* Commands that can be committed now; 0 unless READY. */
uint32_t worker_room(const struct worker_process *worker);
/* For `died`: it had no command, and was loading kernels, the oldest that it did not answer for. */
bool worker_died_loading(const struct worker_process *worker);
/* What its death adds to the half deaths of whatever it mapped or loaded. */
uint32_t worker_half_deaths(const struct worker_process *worker);
/* Commits a command; its index among all commands of this link. */
int worker_submit(struct worker_process *worker,
                  const struct gemmd_command *command,
                  uint64_t *ret_index);
uint64_t worker_system_calls(const struct worker_process *worker);
