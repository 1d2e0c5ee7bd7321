#include "../../daemon/front/listener.h"
#include "../support/process.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static struct fixture {
    uv_loop_t loop;
    char directory[64], path[100];
    unsigned accepted, closed;
    uid_t uid;
    pid_t pid;
    struct fault fault;
} f;

static void on_accepted(struct listener *listener, int fd, uid_t uid, gid_t gid, pid_t pid)
{
    (void)listener;
    (void)gid;
    cr_assert(fcntl(fd, F_GETFL) & O_NONBLOCK);
    cr_assert(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    close(fd);
    f.accepted++;
    f.uid = uid;
    f.pid = pid;
}

static const struct listener_operations operations = {.accepted = on_accepted};

static void start(void)
{
    cr_assert_eq(uv_loop_init(&f.loop), 0);
    strcpy(f.directory, "/tmp/gemmd-listener-XXXXXX");
    cr_assert_not_null(mkdtemp(f.directory));
    snprintf(f.path, sizeof(f.path), "%s/s", f.directory);
}

/* rmdir() fails when something is left behind: the lock file, the socket. */
static void stop(void)
{
    cr_assert_eq(uv_loop_close(&f.loop), 0);
    (void)unlink(f.path);
    cr_assert_eq(rmdir(f.directory), 0);
}

TestSuite(listener, .init = start, .fini = stop, .timeout = 60);

static int open_at(struct listener *listener, const char *path, mode_t mode)
{
    f.fault = FAULT_NONE;
    return listener_open(listener, &f.loop, path, mode, &operations, &f.fault);
}

static void on_closed(uv_handle_t *handle)
{
    (void)handle;
    f.closed++;
}

static void close_it(struct listener *listener)
{
    const unsigned before = f.closed;

    listener_close(listener, on_closed);
    uv_run(&f.loop, UV_RUN_DEFAULT);
    cr_assert_eq(f.closed, before + 1);
}

static struct sockaddr_un address_of(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    strcpy(address.sun_path, path);
    return address;
}

static int connect_to(const char *path)
{
    const struct sockaddr_un address = address_of(path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0)
        return fd;
    close(fd);
    return -1;
}

static mode_t mode_of(const char *path)
{
    struct stat status;

    return lstat(path, &status) == 0 ? status.st_mode & 07777 : 0;
}

static bool exists(const char *path)
{
    struct stat status;

    return lstat(path, &status) == 0;
}

static void leave_stale(int type)
{
    const struct sockaddr_un address = address_of(f.path);
    int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);

    cr_assert_eq(bind(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
    close(fd);
}

Test(listener, accepts_and_says_who_it_is)
{
    struct listener listener;
    int fd;

    cr_assert_eq(open_at(&listener, f.path, 0600), 0);
    fd = connect_to(f.path);
    cr_assert_geq(fd, 0);
    uv_run(&f.loop, UV_RUN_ONCE);
    cr_expect_eq(f.accepted, 1);
    cr_expect_eq(f.uid, getuid());
    cr_expect_eq(f.pid, getpid());
    close(fd);
    close_it(&listener);
    cr_expect_not(exists(f.path), "the path is removed at the end");
}

Test(listener, has_the_mode_that_was_asked_whatever_the_umask)
{
    static const mode_t modes[] = {0600, 0660, 0666, 0700};
    static const mode_t masks[] = {0, 022, 077};

    for (size_t m = 0; m < ARRAY_SIZE(modes); m++) {
        for (size_t u = 0; u < ARRAY_SIZE(masks); u++) {
            struct listener listener;
            mode_t mask;

            (void)umask(masks[u]);
            cr_assert_eq(open_at(&listener, f.path, modes[m]), 0);
            cr_expect_eq(mode_of(f.path), modes[m]);
            mask = umask(masks[u]);
            cr_expect_eq(mask, masks[u], "the process's umask is as before");
            close_it(&listener);
        }
    }
}

Test(listener, is_never_wider_than_asked_at_any_instant)
{
    volatile unsigned *widest =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t watcher;

    (void)umask(0);
    watcher = process_fork();
    if (watcher == 0)
        for (;;)
            *widest |= mode_of(f.path);
    for (unsigned i = 0; i < 300 || *widest == 0; i++) { /* and it has looked at all */
        struct listener listener;

        cr_assert_eq(open_at(&listener, f.path, 0600), 0);
        close_it(&listener);
    }
    kill(watcher, SIGKILL);
    waitpid(watcher, NULL, 0);
    cr_expect_eq(*widest & ~0600u, 0, "seen: %o", *widest);
}

Test(listener, says_the_limit_of_a_path)
{
    struct listener listener;
    char path[200];

    memset(path, 'x', sizeof(path));
    path[108] = 0;
    cr_expect_eq(open_at(&listener, path, 0600), LISTENER_E_PATH_TOO_LONG);
    cr_expect_not_null(strstr(f.fault.message, "107"), "%s", f.fault.message);
    cr_expect_not_null(strstr(f.fault.message, "108"), "%s", f.fault.message);
    cr_expect_eq(open_at(&listener, "", 0600), LISTENER_E_PATH_TOO_LONG);
}

Test(listener, takes_a_path_of_107_bytes)
{
    struct listener listener;
    char path[108];
    const int length = snprintf(path, sizeof(path), "%s/", f.directory);

    memset(path + length, 'x', 107 - length);
    path[107] = 0;
    cr_assert_eq(open_at(&listener, path, 0600), 0);
    cr_expect_str_eq(listener.address, path);
    cr_expect_eq(connect_to("/nonexistent"), -1);
    close_it(&listener);
}

Test(listener, replaces_a_stale_socket)
{
    struct listener listener;
    int fd;

    leave_stale(SOCK_STREAM);
    cr_assert_eq(open_at(&listener, f.path, 0600), 0, "%s", f.fault.message);
    fd = connect_to(f.path);
    cr_expect_geq(fd, 0);
    close(fd);
    close_it(&listener);
}

Test(listener, never_takes_the_path_of_a_live_daemon)
{
    struct listener first, second;

    cr_assert_eq(open_at(&first, f.path, 0600), 0);
    cr_expect_eq(open_at(&second, f.path, 0600), LISTENER_E_IN_USE);
    cr_expect_eq(f.fault.status, STATUS_EXISTS);
    cr_expect_not_null(strstr(f.fault.message, f.path));
    cr_expect(exists(f.path));
    close_it(&first);
}

Test(listener, finds_a_live_daemon_that_holds_no_lock)
{
    const struct sockaddr_un address = address_of(f.path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct listener listener;

    cr_assert_eq(bind(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
    cr_assert_eq(listen(fd, 0), 0);
    cr_expect_eq(open_at(&listener, f.path, 0600), LISTENER_E_IN_USE);
    /* The probe took the only place in the backlog: the next one cannot connect, and must not think
     * the socket stale. */
    cr_expect_eq(open_at(&listener, f.path, 0600), LISTENER_E_IN_USE);
    cr_expect_eq(open_at(&listener, f.path, 0600), LISTENER_E_IN_USE);
    cr_expect(exists(f.path));
    close(fd);
}

Test(listener, leaves_alone_whatever_is_not_a_socket)
{
    struct listener listener;
    int fd = open(f.path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    char target[120];

    close(fd);
    cr_expect_eq(open_at(&listener, f.path, 0600), LISTENER_E_NOT_A_SOCKET);
    cr_expect(exists(f.path));
    unlink(f.path);

    cr_assert_eq(mkdir(f.path, 0700), 0);
    cr_expect_eq(open_at(&listener, f.path, 0600), LISTENER_E_NOT_A_SOCKET);
    cr_assert_eq(rmdir(f.path), 0);

    cr_assert_eq(mkfifo(f.path, 0600), 0);
    cr_expect_eq(open_at(&listener, f.path, 0600), LISTENER_E_NOT_A_SOCKET);
    unlink(f.path);

    snprintf(target, sizeof(target), "%s/elsewhere", f.directory);
    cr_assert_eq(symlink(target, f.path), 0); /* would be bound through */
    cr_expect_eq(open_at(&listener, f.path, 0600), LISTENER_E_NOT_A_SOCKET);
    cr_expect(exists(f.path));
    cr_expect_not(exists(target));
}

Test(listener, does_not_take_a_datagram_socket_for_a_stale_one)
{
    const struct sockaddr_un address = address_of(f.path);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct listener listener;

    cr_assert_eq(bind(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
    cr_expect_eq(open_at(&listener, f.path, 0600), LISTENER_E_REFUSED);
    cr_expect(exists(f.path));
    close(fd);
}

Test(listener, says_why_it_cannot_bind)
{
    struct listener listener;

    cr_expect_eq(open_at(&listener, "/nonexistent/s", 0600), LISTENER_E_REFUSED);
    cr_expect_not_null(strstr(f.fault.message, "/nonexistent/s"), "%s", f.fault.message);
    cr_expect_not_null(strstr(f.fault.message, "No such file"), "%s", f.fault.message);
}

Test(listener, does_not_remove_a_path_that_is_no_longer_its_own)
{
    struct listener listener;

    cr_assert_eq(open_at(&listener, f.path, 0600), 0);
    unlink(f.path);
    leave_stale(SOCK_STREAM);
    close_it(&listener);
    cr_expect(exists(f.path));
}

/* Of many daemons that start at once over a stale socket, one serves. */
Test(listener, lets_one_of_many_win)
{
    enum { RACERS = 8 };

    pid_t racers[RACERS];
    int gate[2], result[2], winners = 0, status;
    char byte;

    for (unsigned round = 0; round < 20; round++) {
        leave_stale(SOCK_STREAM);
        cr_assert(pipe(gate) == 0 && pipe(result) == 0);
        for (unsigned i = 0; i < RACERS; i++) {
            racers[i] = process_fork();
            if (racers[i] == 0) {
                struct listener listener;
                int r;

                close(gate[1]);
                (void)!read(gate[0], &byte, 1); /* all go when the gate closes */
                r = open_at(&listener, f.path, 0600);
                (void)!write(result[1], r == 0 ? "w" : r == LISTENER_E_IN_USE ? "l" : "?", 1);
                if (r == 0)
                    pause(); /* serves until it is killed */
                _exit(0);
            }
        }
        close(gate[0]);
        close(gate[1]);
        winners = 0;
        for (unsigned i = 0; i < RACERS; i++) {
            cr_assert_eq(read(result[0], &byte, 1), 1);
            cr_assert_neq(byte, '?', "it lost for another reason");
            winners += byte == 'w';
        }
        cr_assert_eq(winners, 1, "round %u: %d serve", round, winners);
        for (unsigned i = 0; i < RACERS; i++) {
            kill(racers[i], SIGKILL);
            waitpid(racers[i], &status, 0);
        }
        close(result[0]);
        close(result[1]);
        unlink(f.path);
    }
    char lock[120];

    snprintf(lock, sizeof(lock), "%s.lock",
             f.path); /* of the killed winner; the next one takes it */
    cr_expect(exists(lock));
    unlink(lock);
}

Test(listener, waits_for_descriptors_without_spinning)
{
    struct rlimit before, none;
    struct listener listener;
    int fd;

    cr_assert_eq(open_at(&listener, f.path, 0600), 0);
    fd = connect_to(f.path);
    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = 0;
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
    uv_run(&f.loop, UV_RUN_ONCE);
    cr_expect_eq(f.accepted, 0);
    cr_expect(uv_is_active((uv_handle_t *)&listener.retry));
    cr_expect_not(uv_is_active((uv_handle_t *)&listener.poll));
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
    while (f.accepted == 0)
        uv_run(&f.loop, UV_RUN_ONCE);
    close(fd);
    close_it(&listener);
}

#ifdef GEMMD_HAVE_SYSTEMD

/* --- LISTEN_FDS ------------------------------------------------------------------------------ */

/* Runs in a child: descriptor 3 belongs to the test framework here. Steps are counted in the exit
 * status: 0, or the one that went wrong. */
static int in_child(int fd, int (*steps)(void))
{
    pid_t child = fork();
    int status = 0;
    char pid[32];

    if (child == 0) {
        snprintf(pid, sizeof(pid), "%d", getpid());
        setenv("LISTEN_PID", pid, 1);
        setenv("LISTEN_FDS", "1", 1);
        _exit(dup2(fd, 3) == 3 ? steps() : 99);
    }
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int serve_inherited(void)
{
    struct listener listener;
    int fd;

    if (uv_loop_init(&f.loop) != 0 || open_at(&listener, "/unused", 0600) != 0)
        return 1;
    if (getenv("LISTEN_FDS") != NULL) /* children must not find it */
        return 2;
    if (strcmp(listener.address, f.path) != 0) /* not the one that it would have made */
        return 5;
    fd = connect_to(f.path);
    uv_run(&f.loop, UV_RUN_ONCE);
    if (fd < 0 || f.accepted != 1)
        return 3;
    listener_close(&listener, on_closed);
    uv_run(&f.loop, UV_RUN_DEFAULT);
    return f.closed == 1 ? 0 : 4;
}

Test(listener, serves_the_socket_it_inherits)
{
    const struct sockaddr_un address = address_of(f.path);
    int inherited = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    cr_assert_eq(bind(inherited, (const struct sockaddr *)&address, sizeof(address)), 0);
    cr_assert_eq(listen(inherited, 5), 0);
    cr_expect_eq(in_child(inherited, serve_inherited), 0);
    cr_expect(exists(f.path), "an inherited path is not ours to remove");
    close(inherited);
}

static int refuse_inherited(void)
{
    struct listener listener;

    if (uv_loop_init(&f.loop) != 0 || open_at(&listener, f.path, 0600) != LISTENER_E_REFUSED)
        return 1;
    return strcmp(f.fault.argument, "LISTEN_FDS") == 0 ? 0 : 2;
}

Test(listener, refuses_an_inherited_descriptor_of_another_kind)
{
    int fd = memfd_create("x", MFD_CLOEXEC);

    cr_expect_eq(in_child(fd, refuse_inherited), 0);
    close(fd);
}

#endif
