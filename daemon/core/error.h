/*
 * Return codes of every function in this project that can fail.
 *
 *   0    success; `ret_` outputs are written only then.
 *   < 0  a negative errno: unexpected. Forwarded unchanged up to whoever can end the object it
 *        concerns (a session, a child, the process), never matched on in between.
 *   > 0  a documented outcome, MODULE_E_*: handled by the direct caller, never forwarded.
 *
 * error_origin() starts a trace where a failure is first seen, error_trace() adds a frame where
 * it passes through, error_fold() turns a positive outcome nobody expected into a fatal one. The
 * trace goes to stderr, so a failed system call shows its path without a debugger.
 */
#pragma once

#include <errno.h>

#define error_origin(r) error_note((r), "origin", __FILE__, __LINE__, __func__)
#define error_trace(r)  error_note((r), "trace", __FILE__, __LINE__, __func__)
#define error_fold(r)                                                                              \
    ((r) > 0 ? error_note(-ENOTRECOVERABLE, "fold", __FILE__, __LINE__, __func__) : error_trace(r))

/* Writes one line when r < 0 and returns r. */
int error_note(int r, const char *what, const char *file, int line, const char *function);
