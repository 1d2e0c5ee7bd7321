/*
 * Several users on one daemon: who may connect, who may use what, and that nobody meets another's
 * bytes. Children of root become the others.
 */
#include "../support/daemon.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ALICE = 1234, BOB = 1235, GROUP = 2345 };

static struct test_daemon daemon_;
static gemmd *own;

static void start_with_mode(const char *mode)
{
    const char *const arguments[] = {"--mode", mode, NULL};

    if (getuid() != 0)
        cr_skip_test("needs root, to become others");
    test_daemon_start(&daemon_, arguments);
    (void)chmod(daemon_.directory, 0755);
    own = test_daemon_connect(&daemon_);
}

static void stop(void)
{
    if (!own)
        return;
    gemmd_close(own);
    test_daemon_stop(&daemon_);
}

TestSuite(users, .fini = stop, .timeout = 60);

typedef int (*task_fn)(gemmd *connection);

static int task_nothing(gemmd *connection)
{
    (void)connection;
    return GEMMD_OK;
}

/* The status of a task of another user; that of connecting, when that fails. */
static int as(uid_t uid, gid_t gid, task_fn task)
{
    int status;
    pid_t child = fork();

    if (child == 0) {
        gemmd *connection = NULL;

        if (setgroups(0, NULL) < 0 || setgid(gid) < 0 || setuid(uid) < 0)
            _exit(100);
        status = (int)gemmd_connect(daemon_.socket, &connection, NULL);
        _exit(status == GEMMD_OK ? task(connection) : status);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status));
    return WEXITSTATUS(status);
}

Test(users, the_sockets_mode_keeps_others_out)
{
    struct stat status;

    start_with_mode("0600");
    cr_assert_eq(stat(daemon_.socket, &status), 0);
    cr_expect_eq(status.st_mode & 0777, 0600);
    cr_expect_neq(as(ALICE, ALICE, task_nothing), GEMMD_OK);
    cr_assert_eq(chown(daemon_.socket, 0, GROUP), 0);
    cr_expect_neq(as(ALICE, GROUP, task_nothing), GEMMD_OK);
    cr_assert_eq(chmod(daemon_.socket, 0660), 0);
    cr_expect_eq(as(ALICE, GROUP, task_nothing), GEMMD_OK);
    cr_expect_neq(as(BOB, BOB, task_nothing), GEMMD_OK);
}

static int task_prune(gemmd *connection)
{
    uint64_t removed;

    return (int)gemmd_cache_prune(connection, 0, &removed);
}

static int list(gemmd *connection, bool verify)
{
    char *json = NULL;
    int status = (int)gemmd_cache_list_json(connection, verify, &json);

    gemmd_free(json);
    return status;
}

static int task_verify(gemmd *connection)
{
    return list(connection, true);
}

static int task_list(gemmd *connection)
{
    return list(connection, false);
}

Test(users, may_look_at_the_cache_and_not_empty_it)
{
    start_with_mode("0666");
    cr_expect_eq(as(ALICE, ALICE, task_prune), GEMMD_PERMISSION);
    cr_expect_eq(as(ALICE, ALICE, task_verify), GEMMD_PERMISSION);
    cr_expect_eq(as(ALICE, ALICE, task_list), GEMMD_OK);
    cr_expect_eq(task_prune(own), GEMMD_OK);
    cr_expect_eq(task_verify(own), GEMMD_OK);
}

/* --- named buffers --------------------------------------------------------------------------- */

static int make_shared(gemmd *connection)
{
    gemmd_buffer *buffer = NULL;
    int status = (int)gemmd_buffer_create(connection, GEMMD_HOST, 4096, "shared", 0640, &buffer);

    return status == GEMMD_OK ? (int)gemmd_buffer_write(buffer, 0, "mine", 4) : status;
}

static int read_shared(gemmd *connection)
{
    gemmd_buffer *buffer = NULL;
    char text[4];
    int status = (int)gemmd_buffer_open(connection, "shared", false, &buffer);

    if (status == GEMMD_OK)
        status = (int)gemmd_buffer_read(buffer, 0, text, 4);
    return status == GEMMD_OK && memcmp(text, "mine", 4) != 0 ? 101 : status;
}

static int write_shared(gemmd *connection)
{
    gemmd_buffer *buffer = NULL;

    return (int)gemmd_buffer_open(connection, "shared", true, &buffer);
}

/* What a reader is given cannot be opened anew for writing. */
static int map_shared_for_writing(gemmd *connection)
{
    gemmd_buffer *buffer = NULL;
    int status = (int)gemmd_buffer_open(connection, "shared", false, &buffer);

    for (int fd = 3; status == GEMMD_OK && fd < 64; fd++) {
        char path[32], target[64] = "";

        (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        if (readlink(path, target, sizeof(target) - 1) > 0 && strstr(target, "gemmd-buffer") &&
            open(path, O_RDWR) >= 0)
            return 102;
    }
    return status;
}

static int free_shared(gemmd *connection)
{
    gemmd_buffer *buffer = NULL;
    int status = (int)gemmd_buffer_open(connection, "shared", false, &buffer);

    gemmd_buffer_free(buffer);
    return status;
}

Test(users, share_a_buffer_as_its_mode_says)
{
    start_with_mode("0666");
    cr_assert_eq(as(ALICE, GROUP, make_shared), GEMMD_OK);
    cr_expect_eq(as(ALICE, GROUP, read_shared), GEMMD_OK);
    cr_expect_eq(as(ALICE, ALICE, write_shared), GEMMD_OK);
    cr_expect_eq(as(BOB, GROUP, read_shared), GEMMD_OK);
    cr_expect_eq(as(BOB, GROUP, write_shared), GEMMD_PERMISSION);
    cr_expect_eq(as(BOB, GROUP, map_shared_for_writing), GEMMD_OK);
    cr_expect_eq(as(BOB, BOB, read_shared), GEMMD_PERMISSION);
    cr_expect_eq(as(BOB, BOB, make_shared), GEMMD_EXISTS);
    /* A reader that frees its handle does not take the name away; the owner does. */
    cr_expect_eq(as(BOB, GROUP, free_shared), GEMMD_OK);
    cr_expect_eq(as(BOB, GROUP, read_shared), GEMMD_OK);
    cr_expect_eq(as(ALICE, GROUP, free_shared), GEMMD_OK);
    cr_expect_eq(as(BOB, GROUP, read_shared), GEMMD_NOT_FOUND);
}

/* --- what another left behind ---------------------------------------------------------------- */

static int leave_secrets(gemmd *connection)
{
    enum { SIZE = 1 << 20 };

    char *secret = malloc(SIZE);
    int status = GEMMD_OK;

    (void)memset(secret, 0x5a, SIZE);
    for (int i = 0; i < 8 && status == GEMMD_OK; i++) {
        gemmd_buffer *buffer = NULL;

        status = (int)gemmd_buffer_create(connection, i % 2 ? GEMMD_DEVICE : GEMMD_HOST, SIZE, NULL,
                                          0, &buffer);
        if (status == GEMMD_OK)
            status = (int)gemmd_buffer_write(buffer, 0, secret, SIZE);
    }
    return status;
}

static int find_secrets(gemmd *connection)
{
    enum { SIZE = 1 << 20 };

    char *seen = malloc(SIZE);
    int status = GEMMD_OK;

    for (int i = 0; i < 16 && status == GEMMD_OK; i++) {
        gemmd_buffer *buffer = NULL;

        status = (int)gemmd_buffer_create(connection, i % 2 ? GEMMD_DEVICE : GEMMD_HOST, SIZE, NULL,
                                          0, &buffer);
        if (status == GEMMD_OK)
            status = (int)gemmd_buffer_read(buffer, 0, seen, SIZE);
        for (int j = 0; j < SIZE && status == GEMMD_OK; j++)
            status = seen[j] == 0 ? GEMMD_OK : 103;
    }
    return status;
}

/* Rows further apart than they are long: what lies between them in the inline result. */
static int find_secrets_between_rows(gemmd *connection)
{
    enum { N = 8, LD = 4000 };

    static float a[N * N], d[N * LD];
    gemmd_product product = GEMMD_PRODUCT_INIT;
    int status;

    product.input = GEMMD_FP32;
    product.m = product.n = product.k = N;
    product.a.data = product.b.data = a;
    product.d.data = d;
    product.d.ld = LD;
    status = (int)gemmd_gemm(connection, &product, NULL);
    for (int i = 0; i < N * LD && status == GEMMD_OK; i++)
        status = d[i] == 0 ? GEMMD_OK : 104;
    return status;
}

Test(users, never_meet_each_others_bytes)
{
    start_with_mode("0666");
    for (int round = 0; round < 3; round++) {
        cr_expect_eq(as(ALICE, ALICE, leave_secrets), GEMMD_OK);
        cr_expect_eq(as(BOB, BOB, find_secrets), GEMMD_OK);
        cr_expect_eq(as(BOB, BOB, find_secrets_between_rows), GEMMD_OK);
    }
}
