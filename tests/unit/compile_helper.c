/*
 * The program that test_compiler starts in place of the daemon's own: the real compile role, or,
 * with GEMMD_TEST_CHILD, one that misbehaves in the named way. A fake answers without NVRTC.
 *
 * GEMMD_TEST_COUNT names a file that gets one byte for each request.
 */
#include "../../daemon/jit/compile_message.h"
#include "../../daemon/roles.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SOCKET_FD 3

static const char cubin[] = "a cubin of the helper";

static void put(const void *bytes, size_t size)
{
    if (write(SOCKET_FD, bytes, size) != (ssize_t)size)
        exit(9);
}

static void put_header(uint32_t kind, uint64_t size)
{
    struct compile_header header = {.magic = COMPILE_MAGIC, .kind = kind, .size = size};

    put(&header, sizeof(header));
}

static void say_hello(bool has_nvrtc, uint32_t protocol)
{
    const char *build = getenv("GEMMD_TEST_BUILD");
    struct compile_hello hello = {.protocol = protocol, .has_nvrtc = has_nvrtc};

    if (has_nvrtc) {
        hello.identity.major = 99;
        (void)snprintf(hello.identity.build, sizeof(hello.identity.build), "%s",
                       build ? build : "helper");
    } else {
        hello.fault.status = STATUS_UNSUPPORTED;
        strcpy(hello.fault.message, "NVRTC is not here");
    }
    put_header(COMPILE_HELLO, sizeof(hello));
    put(&hello, sizeof(hello));
}

static void count_request(void)
{
    const char *path = getenv("GEMMD_TEST_COUNT");
    int fd = path ? open(path, O_WRONLY | O_APPEND | O_CREAT, 0600) : -1;

    if (fd >= 0 && write(fd, "x", 1) == 1)
        (void)close(fd);
}

static void put_answer(const struct compile_request *request, size_t sent)
{
    struct compile_result result = {
        .key = request->key,
        .registers = 42,
        .compile_seconds = 0.25,
        .cubin_size = sizeof(cubin),
    };

    put_header(COMPILE_RESULT, sizeof(result) + sizeof(cubin));
    put(&result, sizeof(result));
    put(cubin, sent);
}

static void put_failure(const struct compile_request *request)
{
    struct compile_result result = {
        .key = request->key,
        .fault = {.status = STATUS_COMPILE_FAILED, .message = "a log"},
    };

    put_header(COMPILE_RESULT, sizeof(result));
    put(&result, sizeof(result));
}

/* The mode, but for a first time that GEMMD_TEST_ONCE allows: that file is removed by it. */
static const char *mode_now(const char *mode)
{
    const char *once = getenv("GEMMD_TEST_ONCE");

    return once && unlink(once) < 0 ? "answer" : mode;
}

static void answer(const char *mode, const struct compile_request *request)
{
    static const uint8_t junk[64] = {1, 2, 3};

    mode = mode_now(mode);
    if (strcmp(mode, "crash") == 0) {
        (void)signal(SIGSEGV, SIG_DFL);
        (void)raise(SIGSEGV);
    } else if (strcmp(mode, "hang") == 0) {
        (void)signal(SIGTERM, SIG_IGN);
        pause();
    } else if (strcmp(mode, "exit") == 0) {
        exit(3);
    } else if (strcmp(mode, "junk") == 0) {
        put(junk, sizeof(junk));
        pause();
    } else if (strcmp(mode, "huge") == 0) {
        put_header(COMPILE_RESULT, UINT64_MAX);
        pause();
    } else if (strcmp(mode, "hello-again") == 0) {
        say_hello(true, COMPILE_PROTOCOL);
        pause();
    } else if (strcmp(mode, "half") == 0) {
        put_answer(request, 5);
        exit(0);
    } else if (strcmp(mode, "mute") == 0) {
        (void)close(SOCKET_FD);
        pause();
    } else if (strcmp(mode, "answer-and-exit") == 0) {
        put_answer(request, sizeof(cubin));
        exit(0);
    } else if (strcmp(mode, "fail") == 0) {
        put_failure(request);
    } else {
        (void)usleep(20000);
        put_answer(request, sizeof(cubin));
    }
}

static bool read_exactly(void *bytes, size_t size)
{
    uint8_t *next = bytes;

    while (size > 0) {
        ssize_t n = read(SOCKET_FD, next, size);

        if (n <= 0)
            return false;
        next += n;
        size -= (size_t)n;
    }
    return true;
}

static int fake(const char *mode)
{
    struct compile_header header;
    struct compile_request request;

    if (strcmp(mode, "die-early") == 0)
        return 4;
    if (strcmp(mode, "hang-early") == 0)
        pause();
    say_hello(strcmp(mode, "no-nvrtc") != 0,
              strcmp(mode, "other-version") == 0 ? COMPILE_PROTOCOL + 1 : COMPILE_PROTOCOL);
    while (read_exactly(&header, sizeof(header)) && read_exactly(&request, sizeof(request))) {
        count_request();
        answer(mode, &request);
    }
    return 0;
}

int main(int argc, char **argv)
{
    const char *mode = getenv("GEMMD_TEST_CHILD");

    return mode ? fake(mode) : compile_main(argc - 1, argv + 1);
}
