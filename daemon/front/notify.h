/*
 * Telling whoever started the daemon: systemd over $NOTIFY_SOCKET (when built with libsystemd), a
 * test over a descriptor.
 */
#pragma once

/* Requests are served. `fd` >= 0 gets one byte and is closed. */
void notify_ready(int fd);
void notify_stopping(void);
