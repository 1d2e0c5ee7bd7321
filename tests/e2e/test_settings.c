/*
 * What an operator's configuration file says of uids: each limit is felt by the uid it names, where
 * it says, and what a client held comes back however it ends. (How the file is read:
 * unit/test_settings.c; the built-in limits: test_limits.c.)
 */
#include "../support/process.h"
#include "../support/products.h"
#include "../support/raw.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct test_daemon daemon_;
static char config[64];

static void write_config(const char *text)
{
    FILE *file = fopen(config, "w");

    cr_assert_not_null(file);
    (void)fputs(text, file);
    (void)fclose(file);
}

static void start_with(const char *text)
{
    const char *const arguments[] = {"--config", config, "--mode", "0666", NULL};

    (void)snprintf(config, sizeof(config), "/tmp/gemmd-config-%d", (int)getpid());
    write_config(text);
    test_daemon_start(&daemon_, arguments);
    (void)chmod(daemon_.directory, 0755);
}

static void stop(void)
{
    if (daemon_.pid > 0)
        test_daemon_stop(&daemon_);
    (void)unlink(config);
}

TestSuite(settings, .fini = stop, .timeout = 120);

static const char *section(void)
{
    static char text[32];

    (void)snprintf(text, sizeof(text), "[uid %u]", (unsigned)getuid());
    return text;
}

static void expect_limit(const struct raw_reply *reply, const char *names)
{
    cr_expect_eq(reply->fault.status, STATUS_LIMIT, "%s", status_name(reply->fault.status));
    cr_expect_not_null(strstr(reply->fault.message, names), "no \"%s\" in \"%s\"", names,
                       reply->fault.message);
}

static struct request create_request(enum buffer_kind kind, uint64_t size)
{
    return (struct request){
        .id = 2,
        .method = METHOD_BUFFER_CREATE,
        .body.buffer = {.kind = kind, .size = size, .mode = BUFFER_MODE_DEFAULT}};
}

static struct raw_reply create(int fd, enum buffer_kind kind, uint64_t size)
{
    const struct request request = create_request(kind, size);

    return raw_call(fd, &request, -1);
}

/* A limit on buffers, and what it is felt as. */
static void
expect_buffers(const char *text, enum buffer_kind kind, uint64_t size, int fit, const char *names)
{
    char file[128];
    struct raw_reply reply;
    int fd;

    (void)snprintf(file, sizeof(file), "%s\n%s\n", section(), text);
    start_with(file);
    fd = raw_greeted(&daemon_);
    for (int i = 0; i < fit; i++) {
        reply = create(fd, kind, size);
        cr_expect_eq(reply.fault.status, STATUS_OK, "%s", reply.fault.message);
    }
    reply = create(fd, kind, size);
    expect_limit(&reply, names);
    (void)close(fd);
}

Test(settings, buffers_are_limited)
{
    expect_buffers("buffers = 3", BUFFER_HOST, 1, 3, "buffers; the limit is 3");
}

/* The connection is one. */
Test(settings, descriptors_are_limited)
{
    expect_buffers("descriptors = 5", BUFFER_HOST, 1, 4, "descriptors; the limit is 5");
}

Test(settings, host_bytes_are_limited)
{
    expect_buffers("host-bytes = 10K", BUFFER_HOST, 5120, 2, "host memory; the limit is 10240");
}

Test(settings, device_bytes_are_limited)
{
    expect_buffers("device-bytes = 8M", BUFFER_DEVICE, 4 << 20, 2,
                   "device memory; the limit is 8388608");
}

Test(settings, connections_are_limited)
{
    char file[64];
    struct raw_reply reply = {0};
    int first, second;

    (void)snprintf(file, sizeof(file), "%s\nconnections = 1\n", section());
    start_with(file);
    first = raw_greeted(&daemon_);
    second = raw_connect(&daemon_);
    cr_assert(raw_receive(second, &reply));
    expect_limit(&reply, "connections; the limit is 1");
    (void)close(first);
    (void)close(second);
}

static struct request read_request(uint32_t id, uint64_t buffer, uint64_t length)
{
    return (struct request){
        .id = id, .method = METHOD_BUFFER_READ, .body.buffer = {.id = buffer, .length = length}};
}

Test(settings, jobs_are_limited)
{
    char file[64];
    struct raw_reply reply = {0};
    uint64_t buffer;
    gemmd *watcher;
    pid_t worker;
    int fd;

    (void)snprintf(file, sizeof(file), "%s\njobs = 2\n", section());
    start_with(file);
    watcher = test_daemon_connect(&daemon_);
    fd = raw_greeted(&daemon_);
    buffer = create(fd, BUFFER_HOST, 64).buffer.id;
    worker = test_worker_hold(watcher);
    for (uint32_t i = 0; i < 3; i++) {
        const struct request read = read_request(10 + i, buffer, 64);

        cr_assert(raw_request(fd, &read, -1));
    }
    cr_assert(raw_receive(fd, &reply));
    cr_expect_eq(reply.id, 12);
    expect_limit(&reply, "jobs under way; the limit is 2");
    test_worker_release(worker);
    raw_expect_all(fd, 10, 2, STATUS_OK);
    gemmd_close(watcher);
    (void)close(fd);
}

Test(settings, inline_bytes_are_limited)
{
    char file[64];
    struct raw_reply reply;
    struct request read;
    int fd;

    (void)snprintf(file, sizeof(file), "%s\ninline-bytes = 100\n", section());
    start_with(file);
    fd = raw_greeted(&daemon_);
    read = read_request(3, create(fd, BUFFER_HOST, 101).buffer.id, 100);
    cr_expect_eq(raw_call(fd, &read, -1).fault.status, STATUS_OK);
    read.body.buffer.length = 101;
    reply = raw_call(fd, &read, -1);
    expect_limit(&reply, "inline operands; the limit is 100");
    (void)close(fd);
}

Test(settings, bytes_of_unfinished_frames_are_limited)
{
    enum { PART = 4 << 20 };

    uint8_t *frame = calloc(1, FRAME_HEADER_SIZE + PART);
    struct raw_reply reply = {0};
    char file[64];
    int fd;

    (void)snprintf(file, sizeof(file), "%s\nmessage-bytes = 1M\n", section());
    start_with(file);
    fd = raw_greeted(&daemon_);
    frame_encode(frame, PART, 0);
    (void)raw_send(fd, frame, FRAME_HEADER_SIZE + PART, -1);
    cr_assert(raw_receive(fd, &reply));
    cr_expect_eq(reply.id, REPLY_ID_LAST);
    expect_limit(&reply, "unfinished frames");
    (void)close(fd);
    free(frame);
}

/* The one that lets most wait goes, not the one that reads. */
Test(settings, bytes_of_unread_replies_are_limited_and_cost_the_slowest)
{
    enum { PART = 10 << 20 };

    char file[64];
    gemmd *watcher;
    int slow, prompt;
    uint64_t buffer;

    (void)snprintf(file, sizeof(file), "%s\noutput-bytes = 24M\n", section());
    start_with(file);
    watcher = test_daemon_connect(&daemon_);
    slow = raw_greeted(&daemon_);
    buffer = create(slow, BUFFER_HOST, PART).buffer.id;
    for (uint32_t i = 0; i < 2; i++) {
        const struct request read = read_request(10 + i, buffer, PART);

        cr_assert(raw_request(slow, &read, -1));
    }
    while (test_status_number(watcher, "charged", "output_bytes") < 2 * PART - (2 << 20))
        (void)usleep(1000);
    cr_expect_eq(test_stats_number(watcher, NULL, "dropped_unread"), 0);

    prompt = raw_greeted(&daemon_);
    const struct request more = read_request(12, create(prompt, BUFFER_HOST, PART).buffer.id, PART);

    cr_assert(raw_request(prompt, &more, -1));
    while (test_stats_number(watcher, NULL, "dropped_unread") < 1)
        (void)usleep(1000);
    raw_expect(prompt, 12, STATUS_OK);
    cr_expect(raw_ends(slow, 10));
    cr_expect_eq(test_stats_number(watcher, NULL, "dropped_unread"), 1);
    gemmd_close(watcher);
    (void)close(slow);
    (void)close(prompt);
}

Test(settings, default_holds_for_whom_no_section_names)
{
    char file[96];
    gemmd *connection;
    int fd, second;
    struct raw_reply reply = {0};

    (void)snprintf(file, sizeof(file), "[default]\nconnections = 2\nbuffers = 0\n%s\nbuffers = 1\n",
                   section());
    start_with(file);
    fd = raw_greeted(&daemon_);
    cr_expect_eq(create(fd, BUFFER_HOST, 1).fault.status, STATUS_OK);
    connection = test_daemon_connect(&daemon_);
    second = raw_connect(&daemon_);
    cr_assert(raw_receive(second, &reply));
    expect_limit(&reply, "connections; the limit is 2");
    gemmd_close(connection);
    (void)close(second);
    (void)close(fd);
}

/* --- reading it again ------------------------------------------------------------------------ */

static void reload(const char *text, const char *logs)
{
    write_config(text);
    cr_assert_eq(kill(daemon_.pid, SIGHUP), 0);
    while (!test_daemon_logged(&daemon_, logs))
        (void)usleep(1000);
}

Test(settings, hangup_makes_new_limits_hold_for_who_is_here)
{
    char file[96];
    struct raw_reply reply;
    int fd;

    (void)snprintf(file, sizeof(file), "%s\nbuffers = 2\n", section());
    start_with(file);
    fd = raw_greeted(&daemon_);
    for (int i = 0; i < 2; i++)
        cr_expect_eq(create(fd, BUFFER_HOST, 1).fault.status, STATUS_OK);

    (void)snprintf(file, sizeof(file), "%s\nbuffers = 3\n", section());
    reload(file, "reload=done");
    cr_expect_eq(create(fd, BUFFER_HOST, 1).fault.status, STATUS_OK);
    reply = create(fd, BUFFER_HOST, 1);
    expect_limit(&reply, "buffers; the limit is 3");

    (void)snprintf(file, sizeof(file), "%s\nbuffers = 1\nbufers = 9\n", section());
    reload(file, "reload=failed");
    reply = create(fd, BUFFER_HOST, 1);
    expect_limit(&reply, "buffers; the limit is 3");
    (void)close(fd);
}

Test(settings, a_wrong_file_stops_the_start_and_says_where)
{
    const char *const arguments[] = {"--config", config, NULL};
    char place[128];

    (void)snprintf(config, sizeof(config), "/tmp/gemmd-config-%d", (int)getpid());
    write_config("[daemon]\ndevise = cpu\n");
    cr_expect_eq(test_daemon_start_failing(&daemon_, arguments), 2);
    (void)snprintf(place, sizeof(place), "%s:2: [daemon] has no devise", config);
    cr_expect(test_daemon_logged(&daemon_, place));
    cr_expect(test_daemon_logged(&daemon_, "did you mean device?"));
    test_daemon_remove(&daemon_);
    daemon_.pid = 0;
}

/* --- what comes back ------------------------------------------------------------------------- */

/* A client with some of everything, until it is killed. */
static pid_t hold_everything(int told)
{
    pid_t child = process_fork();

    if (child != 0)
        return child;
    for (int i = 0; i < 3; i++) {
        int fd = raw_greeted(&daemon_);
        uint64_t host = create(fd, BUFFER_HOST, 1 << 20).buffer.id;

        (void)create(fd, BUFFER_DEVICE, 1 << 16);
        for (uint32_t r = 0; r < 20; r++) {
            const struct request read = read_request(100 + r, host, 1 << 20);

            (void)raw_request(fd, &read, -1);
        }
        uint8_t half[FRAME_HEADER_SIZE + 100000] = {0};

        frame_encode(half, 200000, 0);
        (void)raw_send(fd, half, sizeof(half), -1);
    }
    (void)!write(told, "", 1);
    for (;;)
        (void)pause();
}

static void wait_for(gemmd *watcher, const char *name, double value)
{
    for (int i = 0; i < 60000 && test_status_number(watcher, "charged", name) != value; i++)
        (void)usleep(1000);
    cr_expect_eq(test_status_number(watcher, "charged", name), value, "%s", name);
}

Test(settings, a_killed_client_gives_back_exactly_what_it_held)
{
    static const char *const nothing[] = {"jobs",          "buffers",        "host_bytes",
                                          "device_bytes",  "imported_bytes", "inline_bytes",
                                          "message_bytes", "output_bytes"};
    gemmd *watcher;
    char byte;
    int told[2];

    start_with("");
    cr_assert_eq(pipe(told), 0);
    watcher = test_daemon_connect(&daemon_);
    for (int round = 0; round < 5; round++) {
        pid_t client = hold_everything(told[1]);

        cr_assert_eq(read(told[0], &byte, 1), 1);
        cr_expect_eq(test_status_number(watcher, "charged", "buffers"), 6);
        cr_expect_gt(test_status_number(watcher, "charged", "message_bytes"), 0);
        (void)kill(client, SIGKILL);
        (void)waitpid(client, NULL, 0);
        for (size_t i = 0; i < ARRAY_SIZE(nothing); i++)
            wait_for(watcher, nothing[i], 0);
        wait_for(watcher, "connections", 1);
        wait_for(watcher, "descriptors", 1);
    }
    gemmd_close(watcher);
}
