/*
 * Blocking reads and writes of a stream socket, with a descriptor: for tests that play a peer.
 */
#pragma once

#include "../../daemon/core/std.h"

/* False at the end of the stream. A descriptor that came along is put into *ret_fd, if not NULL. */
bool wire_receive(int fd, void *bytes, size_t size, int *ret_fd);
/* `passed` (-1: none) goes with the first byte. False when the peer left. */
bool wire_transmit(int fd, const void *bytes, size_t size, int passed);
