/*
 * How long the worker was missing, last time, and what of that took how long: to notice, until the
 * old process was reaped, until the new one had a device, until it had memory and kernels again,
 * and until it gave the first answer.
 *
 * Owner: the worker process, by value. Thread: loop.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* In their order. */
enum recovery_stage {
    RECOVERY_NOTICED,  /* from the old worker's last sign of life */
    RECOVERY_ENDED,    /* waitpid() returned */
    RECOVERY_STARTED,  /* the new one said hello */
    RECOVERY_RESTORED, /* it may be given commands */
    RECOVERY_ANSWERED, /* the first of them is done */
    RECOVERY_STAGES,
};

struct recovery {
    uint64_t heard_ns; /* 0: no worker ever was lost */
    uint64_t reached_ns[RECOVERY_STAGES];
};

const char *recovery_stage_name(enum recovery_stage stage);
/* The worker is lost; it was last heard of at `heard_ns`. */
void recovery_begin(struct recovery *recovery, uint64_t heard_ns, uint64_t now_ns);
/* Without effect unless the stage before was reached, and this one was not. */
void recovery_reach(struct recovery *recovery, enum recovery_stage stage, uint64_t now_ns);
bool recovery_has_reached(const struct recovery *recovery, enum recovery_stage stage);
/* Seconds from the stage before; 0 for what was not reached. */
double recovery_seconds(const struct recovery *recovery, enum recovery_stage stage);
