/*
 * How the path is taken: lock `path`.lock, look at what lies there, remove it only if it is a
 * socket that refuses connections, bind. bind() never replaces anything, so whatever a stranger
 * puts there in between makes it fail instead of being lost. The other way, binding a temporary
 * name and renaming it, was rejected: rename() replaces whatever is there, a 107-byte path leaves
 * no room for a longer name, and getsockname() would tell the temporary one for ever.
 */
#include "listener.h"

#include "../core/error.h"
#include "../core/log.h"
#include "../core/socket_path.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#ifdef GEMMD_HAVE_SYSTEMD
#    include <systemd/sd-daemon.h>
#endif

#define ACCEPTS_PER_WAKE 16  /* then the others get their turn */
#define RETRY_MS         100 /* after a failed accept; clients wait in the backlog */

/* `path`.lock may be longer than a socket's path: it is only a file. */
#define LOCK_PATH_MAX (SOCKET_PATH_MAX + sizeof(".lock"))

static int refuse(struct fault *fault, const char *path, const char *what, int error)
{
    fault_set(fault, STATUS_INVALID_ARGUMENT, "socket", "%s %s: %s", what, path, strerror(error));
    return LISTENER_E_REFUSED;
}

static int in_use(struct fault *fault, const char *path)
{
    fault_set(fault, STATUS_EXISTS, "socket", "another daemon serves %s", path);
    return LISTENER_E_IN_USE;
}

static void lock_path(const char *path, char ret_path[LOCK_PATH_MAX])
{
    (void)snprintf(ret_path, LOCK_PATH_MAX, "%s.lock", path);
}

/* --- the lock -------------------------------------------------------------------------------- */

/* Whether the locked file is still the one at the path: its last owner removes it. */
static bool lock_is_current(int fd, const char *path)
{
    struct stat held, there;

    return fstat(fd, &held) == 0 && lstat(path, &there) == 0 && held.st_dev == there.st_dev &&
           held.st_ino == there.st_ino;
}

static int take_lock(const char *path, int *ret_fd, struct fault *fault)
{
    char name[LOCK_PATH_MAX];

    lock_path(path, name);
    for (;;) {
        cleanup(fd_closep) int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

        if (fd < 0)
            return refuse(fault, name, "cannot open the lock file", errno);
        if (flock(fd, LOCK_EX | LOCK_NB) < 0)
            return errno == EWOULDBLOCK ? in_use(fault, path)
                                        : refuse(fault, name, "cannot lock", errno);
        if (lock_is_current(fd, name)) {
            *ret_fd = steal(fd, -1);
            return 0;
        }
    }
}

static void drop_lock(const char *path, int *fd)
{
    char name[LOCK_PATH_MAX];

    if (*fd < 0)
        return;
    lock_path(path, name);
    if (lock_is_current(*fd, name))
        (void)unlink(name); /* before it is unlocked: who opened it meanwhile will see */
    fd_closep(fd);
}

/* --- the path -------------------------------------------------------------------------------- */

static struct sockaddr_un address_of(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    memcpy(address.sun_path, path, strlen(path) + 1);
    return address;
}

/* 0: nobody listens there. */
static int probe(const char *path, struct fault *fault)
{
    cleanup(fd_closep) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const struct sockaddr_un address = address_of(path);

    if (fd < 0)
        return refuse(fault, path, "cannot make a socket for", errno);
    if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0 || errno == EAGAIN)
        return in_use(fault, path); /* EAGAIN: its backlog is full */
    if (errno == ECONNREFUSED || errno == ENOENT)
        return 0;
    return refuse(fault, path, "cannot tell whether a daemon serves", errno);
}

/* Makes the path free, or says why it stays. */
static int clear_path(const char *path, struct fault *fault)
{
    struct stat before, now;
    int r;

    if (lstat(path, &before) < 0)
        return errno == ENOENT ? 0 : refuse(fault, path, "cannot look at", errno);
    if (!S_ISSOCK(before.st_mode)) {
        fault_set(fault, STATUS_EXISTS, "socket", "%s is not a socket; it is left alone", path);
        return LISTENER_E_NOT_A_SOCKET;
    }
    r = probe(path, fault);
    if (r != 0)
        return r;

    if (lstat(path, &now) < 0 || now.st_dev != before.st_dev || now.st_ino != before.st_ino)
        return 0; /* somebody else moved; bind() will tell */
    if (unlink(path) < 0 && errno != ENOENT)
        return refuse(fault, path, "cannot remove the stale socket", errno);
    return 0;
}

/*
 * The socket file is created with the socket's own mode less the umask, so both are set before:
 * the umask holds everywhere, the socket's mode also where a default ACL of the directory overrides
 * the umask. The umask is the process's: this runs before any thread that makes files.
 */
static int bind_path(int fd, const char *path, mode_t mode, struct fault *fault)
{
    const struct sockaddr_un address = address_of(path);
    mode_t before;
    int r;

    if (fchmod(fd, mode & 0777) < 0)
        return refuse(fault, path, "cannot set the mode for", errno);
    before = umask(0777 & ~mode);
    r = bind(fd, (const struct sockaddr *)&address, sizeof(address)) < 0 ? errno : 0;
    (void)umask(before);
    return r == 0 ? 0 : refuse(fault, path, "cannot bind", r);
}

static int serve_path(struct listener *listener, const char *path, mode_t mode, struct fault *fault)
{
    cleanup(fd_closep) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct stat made;
    int r;

    if (fd < 0)
        return refuse(fault, path, "cannot make a socket for", errno);
    r = clear_path(path, fault);
    if (r != 0)
        return r;
    r = bind_path(fd, path, mode, fault);
    if (r != 0)
        return r;
    if (lstat(path, &made) < 0 || listen(fd, SOMAXCONN) < 0) {
        r = refuse(fault, path, "cannot listen on", errno);
        (void)unlink(path);
        return r;
    }
    listener->device = made.st_dev;
    listener->inode = made.st_ino;
    listener->fd = steal(fd, -1);
    return 0;
}

static int open_path(struct listener *listener, const char *path, mode_t mode, struct fault *fault)
{
    const size_t length = strlen(path);
    int r;

    if (length > SOCKET_PATH_MAX || length == 0) {
        fault_set(fault, STATUS_INVALID_ARGUMENT, "socket",
                  "the socket path has %zu bytes; allowed: 1 to %d, as in sockaddr_un", length,
                  SOCKET_PATH_MAX);
        return LISTENER_E_PATH_TOO_LONG;
    }
    r = take_lock(path, &listener->lock_fd, fault);
    if (r != 0)
        return r;
    r = serve_path(listener, path, mode, fault);
    if (r != 0) {
        drop_lock(path, &listener->lock_fd);
        return r;
    }
    memcpy(listener->path, path, length + 1);
    return 0;
}

/* --- LISTEN_FDS ------------------------------------------------------------------------------ */

#ifdef GEMMD_HAVE_SYSTEMD

/* Takes the inherited socket; leaves listener->fd at -1 when there is none. */
static int open_inherited(struct listener *listener, struct fault *fault)
{
    const int count = sd_listen_fds(/* unset_environment= */ 1);
    const int fd = SD_LISTEN_FDS_START;

    if (count == 0)
        return 0;
    if (count < 0)
        return refuse(fault, "LISTEN_FDS", "cannot read", -count);
    if (count > 1) {
        fault_set(fault, STATUS_INVALID_ARGUMENT, "LISTEN_FDS",
                  "LISTEN_FDS is %d; allowed: 1, a listening Unix stream socket", count);
        return LISTENER_E_REFUSED;
    }
    if (sd_is_socket_unix(fd, SOCK_STREAM, /* listening= */ 1, NULL, 0) <= 0) {
        fault_set(fault, STATUS_INVALID_ARGUMENT, "LISTEN_FDS",
                  "descriptor %d is something else; allowed: a listening Unix stream socket", fd);
        return LISTENER_E_REFUSED;
    }
    listener->fd = fd; /* sd_listen_fds() set close-on-exec, uv_poll_init() sets non-blocking */
    return 0;
}

#else

static int open_inherited(struct listener *listener, struct fault *fault)
{
    (void)listener;
    (void)fault;
    return 0;
}

#endif

/* --- accepting ------------------------------------------------------------------------------- */

static void on_poll(uv_poll_t *poll, int status, int events);

static void on_retry(uv_timer_t *timer)
{
    struct listener *listener = container_of(timer, struct listener, retry);

    (void)error_trace(uv_poll_start(&listener->poll, UV_READABLE, on_poll));
}

/* Level-triggered polling would spin on a connection that cannot be taken. */
static void pause_accepting(struct listener *listener, int error)
{
    log_debug("event=accept-failed error=%s retry_ms=%d", strerror(error), RETRY_MS);
    (void)uv_poll_stop(&listener->poll);
    (void)uv_timer_start(&listener->retry, on_retry, RETRY_MS, /* repeat= */ 0);
}

static bool is_passing(int error)
{
    return error == EINTR || error == ECONNABORTED;
}

/* False when there is nothing more to take now. */
static bool accept_one(struct listener *listener)
{
    cleanup(fd_closep) int fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    struct ucred peer;
    socklen_t size = sizeof(peer);

    if (fd < 0 && is_passing(errno))
        return true;
    if (fd < 0) {
        if (errno != EAGAIN && errno != EWOULDBLOCK)
            pause_accepting(listener, errno);
        return false;
    }
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
        return true; /* nobody to charge it to: closed */
    listener->operations->accepted(listener, steal(fd, -1), peer.uid, peer.gid, peer.pid);
    return true;
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct listener *listener = container_of(poll, struct listener, poll);

    (void)events;
    if (status < 0) {
        pause_accepting(listener, -status);
        return;
    }
    for (unsigned i = 0; i < ACCEPTS_PER_WAKE; i++)
        if (!listener->is_open || !accept_one(listener))
            return;
}

static void forget_path(struct listener *listener)
{
    struct stat there;

    if (listener->path[0] != 0) {
        if (lstat(listener->path, &there) == 0 && there.st_dev == listener->device &&
            there.st_ino == listener->inode)
            (void)unlink(listener->path);
        drop_lock(listener->path, &listener->lock_fd);
    }
    fd_closep(&listener->fd);
}

static void note_address(struct listener *listener)
{
    struct sockaddr_un address = {0};
    socklen_t size = sizeof(address);

    if (getsockname(listener->fd, (struct sockaddr *)&address, &size) < 0)
        return;
    if (address.sun_path[0] == '\0' && size > sizeof(address.sun_family))
        address.sun_path[0] = '@';
    memcpy(listener->address, address.sun_path, sizeof(address.sun_path));
}

int listener_open(struct listener *listener,
                  uv_loop_t *loop,
                  const char *path,
                  mode_t mode,
                  const struct listener_operations *operations,
                  struct fault *ret_fault)
{
    int r;

    *listener = LISTENER_NULL;
    listener->operations = operations;
    r = open_inherited(listener, ret_fault);
    if (r == 0 && listener->fd < 0)
        r = open_path(listener, path, mode, ret_fault);
    if (r != 0)
        return r;
    note_address(listener);

    r = uv_poll_init(loop, &listener->poll, listener->fd);
    if (r < 0) {
        forget_path(listener);
        return error_origin(r);
    }
    r = uv_timer_init(loop, &listener->retry);
    assert(r == 0); /* it only fills the handle */
    r = uv_poll_start(&listener->poll, UV_READABLE, on_poll);
    assert(r == 0); /* the handle is new and open */
    listener->is_open = true;
    return 0;
}

static void on_retry_closed(uv_handle_t *handle)
{
    struct listener *listener = container_of((uv_timer_t *)handle, struct listener, retry);

    uv_close((uv_handle_t *)&listener->poll, listener->done);
}

/* One handle after the other, so that `done` runs when libuv needs neither. */
void listener_close(struct listener *listener, uv_close_cb done)
{
    assert(listener->is_open);
    listener->is_open = false;
    listener->done = done;
    (void)uv_poll_stop(&listener->poll);
    forget_path(listener);
    uv_close((uv_handle_t *)&listener->retry, on_retry_closed);
}
