/*
 * Processes that start together: one page of shared memory holds the word they wait for and what
 * each has to say. Waiting costs nothing (a futex), so several crews live side by side and take
 * turns, each with its contexts and operands ready.
 *
 * Owner of the processes and of the page: the parent. A member is this program with the page as
 * descriptor CREW_FD; it dies with its parent.
 */
#pragma once

#include "bench.h"

#include <sys/types.h>

#define CREW_FD   3
#define CREW_MAX  64
#define CREW_WHY  200
#define CREW_UUID 48

/* What a member says after a round. */
struct crew_report {
    double p50, p99;       /* seconds */
    double rate;           /* products per second */
    double device_seconds; /* as the daemon counts them, of all products of the round */
};

struct crew_member {
    double seconds; /* of the next round; 0: sits it out */
    struct crew_report report;
    double spawned, first_result; /* bench_now() */
    uint64_t device_bytes;        /* operands */
};

struct crew_page {
    uint32_t round;   /* futex of the members; counts up, CREW_END ends */
    uint32_t arrived; /* futex of the parent */
    uint32_t failed;
    uint32_t choice; /* futex of the members: one decides for all; 0: not yet */
    char why[CREW_WHY];
    struct crew_member members[CREW_MAX];
};

struct crew {
    struct crew_page *page;
    int fd;
    size_t count;
    pid_t pids[CREW_MAX]; /* 0: has ended */
};

#define CREW_NULL                                                                                  \
    (struct crew)                                                                                  \
    {                                                                                              \
        .fd = -1                                                                                   \
    }

/* --- the parent ------------------------------------------------------------------------------ */

int crew_init(struct crew *crew);
/* Ends the members in order, by force after a while. */
void crew_deinit(struct crew *crew);
/* One more member: this program with `argv` and "--member N" after it. `environment` (may be NULL):
 * NAME=VALUE, or NAME alone for what is not to be set, for it alone; NULL ends the list. */
int crew_add(struct crew *crew, const char *const *argv, char *const *environment);
/* All are ready; false with page->why when one failed or is late. */
bool crew_await(struct crew *crew, double timeout);
/* A round of `seconds` for the members of the mask (bit i), awaited. */
bool crew_round(struct crew *crew, double seconds, uint64_t members);

/* --- a member -------------------------------------------------------------------------------- */

struct crew_page *crew_join(void); /* NULL: this is no member */
/* Reports itself ready, waits for the next round of its own; 0 when there is none. */
double crew_wait(struct crew_page *page, size_t member);
/* The value that member 0 gives with crew_decide(). */
void crew_decide(struct crew_page *page, uint32_t choice);
uint32_t crew_decision(struct crew_page *page);
int crew_fail(struct crew_page *page, const char *format, ...) printf_like(2, 3); /* returns 1 */
