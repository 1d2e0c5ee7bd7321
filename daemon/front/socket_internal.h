/*
 * Shared by socket.c and socket_write.c. Nobody else includes this.
 */
#pragma once

#include "socket.h"

/* Tells the owner what the socket holds, when that changed. False: it is more than it may. */
bool socket_is_granted(struct socket *socket);
/* Asks the loop for what the socket waits for. */
void socket_watch(struct socket *socket);
/* The peer is gone, or a system call says why not. */
void socket_fail(struct socket *socket, int error);

/* Writes what the kernel takes now. May close. */
void socket_flush(struct socket *socket);
void socket_outputs_clear(struct socket *socket);
