/*
 * Where daemon and clients meet when nobody says otherwise: $GEMMD_SOCKET, else
 * $XDG_RUNTIME_DIR/gemmd.sock, else /run/gemmd/gemmd.sock.
 */
#pragma once

#include "std.h"

#define SOCKET_PATH_MAX 107 /* bytes of sockaddr_un.sun_path without the zero */

/* `given` wins when not NULL. The result points into `given`, the environment or `buffer`. */
const char *socket_path_default(const char *given, char buffer[SOCKET_PATH_MAX + 1]);
