/*
 * proto/protocol.md is enough to write a client from: wire_client.py was written from it alone and
 * goes through every part of it against a daemon. Skipped where Python or its msgpack package is
 * missing.
 */
#include "../support/daemon.h"

#include <criterion/criterion.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

extern char **environ;

/* Exit status of python3 with these arguments; -1 when it cannot be run. */
static int python(const char *first, const char *second)
{
    const char *program = getenv("GEMMD_TEST_PYTHON");
    const char *arguments[] = {program ? program : "/usr/bin/python3", first, second, NULL};
    int status = 0;
    pid_t child;

    if (posix_spawnp(&child, arguments[0], NULL, NULL, (char **)arguments, environ) != 0 ||
        waitpid(child, &status, 0) != child)
        return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* In a bundle the client lies with the tests' data. */
static const char *client_path(char *path, size_t size)
{
    const char *data = getenv("GEMMD_TEST_DATA");

    if (!data)
        return WIRE_CLIENT;
    (void)snprintf(path, size, "%s/e2e/wire_client.py", data);
    return path;
}

Test(wire, can_be_spoken_from_the_specification_alone, .timeout = 120)
{
    struct test_daemon daemon = {0};
    char path[4096];

    if (python("-c", "import msgpack") != 0)
        cr_skip_test("no Python with the msgpack package");
    test_daemon_start(&daemon, NULL);
    cr_expect_eq(python(client_path(path, sizeof(path)), daemon.socket), 0);
    test_daemon_stop(&daemon);
}
