/*
 * A frame that came before the device was known: kept with its descriptors until it can be served,
 * and charged like the staged operands that it will become.
 *
 * Owner: its session's list. Thread: loop.
 */
#pragma once

#include "session.h"

struct parked {
    struct list link; /* in session.parked */
    struct charge charge, charge_fds;
    uint64_t received_ns;
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
struct parked *parked_free(struct parked *parked);
