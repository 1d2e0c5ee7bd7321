/*
 * When a daemon may be weighed: nobody but the bench is connected, nothing runs, no child compiles.
 */
#pragma once

#include "client.h"

#include <sys/types.h>

#define SOAK_QUIET_SECONDS 20 /* for compile children to go, too: 10 s after their last work */

/* 0; or 1, and a line that says what is not quiet. */
int soak_await_quiet(gemmd *connection, pid_t daemon);
/* What it does at this moment: for a soak that stands still. */
void soak_print_unrest(gemmd *connection, pid_t daemon);
