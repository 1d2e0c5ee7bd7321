/*
 * The listening Unix socket: LISTEN_FDS, or bind. A stale socket (nobody answers) is replaced, a
 * live daemon's never, anything that is not a socket never; the mode is never wider than asked, at
 * no instant (umask around bind). `path`.lock is held as long as the path is ours, so that of two
 * daemons that start at once one finds the other.
 *
 * Owner: the server. Thread: loop.
 */
#pragma once

#include "../core/status.h"
#include "../core/std.h"
#include <sys/types.h>
#include <uv.h>

struct listener;

struct listener_operations {
    /* `fd` is consumed: a connected, non-blocking, close-on-exec stream socket. */
    void (*accepted)(struct listener *listener, int fd, uid_t uid, gid_t gid, pid_t pid);
};

struct listener {
    const struct listener_operations *operations;
    uv_poll_t poll;
    uv_timer_t retry; /* accepting again after it failed for lack of descriptors or memory */
    int fd;
    int lock_fd;       /* held while we own the path; -1 for LISTEN_FDS */
    char path[108];    /* to unlink at the end; empty for LISTEN_FDS */
    char address[109]; /* where clients find it, for people; "@..." in the abstract namespace */
    dev_t device;      /* with inode: the socket file is still the one we made */
    ino_t inode;
    uv_close_cb done;
    bool is_open;
};

#define LISTENER_NULL ((struct listener){.fd = -1, .lock_fd = -1})

enum {
    LISTENER_E_PATH_TOO_LONG = 1, /* over 107 bytes; the fault says so */
    LISTENER_E_IN_USE,            /* a live daemon answers there */
    LISTENER_E_NOT_A_SOCKET,      /* something else lies there; left alone */
    LISTENER_E_REFUSED,           /* bind failed: the fault says why */
};

/* Where a daemon or client looks without --socket: $GEMMD_SOCKET, $XDG_RUNTIME_DIR/gemmd.sock,
 * /run/gemmd/gemmd.sock. (core/socket_path.h, shared with the client) */
int listener_open(struct listener *listener,
                  uv_loop_t *loop,
                  const char *path,
                  mode_t mode,
                  const struct listener_operations *operations,
                  struct fault *ret_fault);
/* Removes the path when it is still ours. After a successful listener_open() only; `done` gets
 * &listener->poll. */
void listener_close(struct listener *listener, uv_close_cb done);
