/*
 * A daemon for one run of the bench: its own directory, socket and cache, open to every uid of this
 * machine for as long as it lives. It dies with its owner.
 */
#pragma once

#include "bench.h"

#include <stdio.h>

#include <sys/types.h>

struct private_daemon {
    const char *binary, *device;
    pid_t pid; /* 0: none runs */
    char directory[64], socket[96], cache[96], log[96];
};

#define PRIVATE_DAEMON_NULL                                                                        \
    (struct private_daemon)                                                                        \
    {                                                                                              \
        .pid = 0                                                                                   \
    }

/* `binary` NULL: gemmd beside this program, else where a build or a bundle
 * has it. 0, or a line on stderr. */
int private_daemon_start(struct private_daemon *daemon, const char *binary, const char *device);
/* Starts it again when it has ended; `ret_was_dead` says so. */
int private_daemon_ensure(struct private_daemon *daemon, bool *ret_was_dead);
/* What its log says at warning and above, as lines for people; the first and last ones when there
 * are many. */
void private_daemon_print_warnings(const struct private_daemon *daemon, FILE *to);
void private_daemon_stop(struct private_daemon *daemon);
