/*
 * The order of places, in one function so that daemon and clients cannot disagree.
 */
#include "socket_path.h"

#include <stdio.h>
#include <stdlib.h>

/* An empty variable counts as unset, as in the XDG specification. */
static const char *environment(const char *name)
{
    const char *value = getenv(name);

    return value && *value ? value : NULL;
}

const char *socket_path_default(const char *given, char buffer[SOCKET_PATH_MAX + 1])
{
    const char *named = given ? given : environment("GEMMD_SOCKET");
    const char *directory = environment("XDG_RUNTIME_DIR");
    int length;

    /* What somebody named is used as it is: when it is too long, bind or connect says so. */
    if (named)
        return named;
    if (directory) {
        length = snprintf(buffer, SOCKET_PATH_MAX + 1, "%s/gemmd.sock", directory);
        /* Nobody chose a directory so deep for us: on to the next place, for both sides alike. */
        if (length > 0 && length <= SOCKET_PATH_MAX)
            return buffer;
    }
    return "/run/gemmd/gemmd.sock";
}
