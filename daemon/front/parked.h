/*
 * A frame that came before the device was known: kept with its descriptors until it can be served,
 * and charged like the staged operands that it will become. What is late before that is answered
 * when it is late; of several products in one frame, the others stay.
 *
 * Owner: its session's list. Thread: loop.
 */
#pragma once

#include "session.h"

struct parked {
    struct list link; /* in session.parked */
    struct charge charge, charge_fds;
    uint64_t received_ns;
    uint64_t deadline_ns; /* of its products that wait, the earliest; 0: they have none */
    uint64_t answered_ns; /* products whose deadline was earlier were answered; 0: none */
    int fds[FRAME_FDS_MAX];
    size_t n_fds;
    size_t size;
    uint8_t payload[];
};

/* Appends to the session's list; takes the descriptors on success. SESSION_E_FAULT: over a limit.
 */
int parked_new(struct session *session,
               const uint8_t *payload,
               size_t size,
               int *fds,
               size_t n_fds,
               struct fault *ret_fault);
/* The last one, which is this request, has deadlines: they are looked at from now on. */
void parked_watch(struct session *session, const struct request *request);
/* Answers what is late; the earliest deadline to come, 0: there is none. */
uint64_t parked_expire(struct session *session, uint64_t now_ns);
struct parked *parked_free(struct parked *parked);
