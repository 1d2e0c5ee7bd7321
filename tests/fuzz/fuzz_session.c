/*
 * All that clients can do to the front, in any order: up to four of two uids connect, send requests
 * whole, in parts, changed and senseless, with descriptors of every kind, read replies or do not,
 * hang up; the worker answers well or badly, completes in any order, loses its device, dies. The
 * front is the real one, sockets and loop included; only processes are not (session_worker.h).
 *
 * At the end everybody leaves and the worker does what is left. Then nothing may be charged, no job
 * or descriptor be left, the loop come to its end by itself, and (AddressSanitizer) no memory.
 */
#include "../../daemon/front/server.h"
#include "session_client.h"
#include "session_worker.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CLIENTS      4
#define TURNS_MAX    20000 /* of the loop, at the end: far more than it ever takes */
#define ACTIONS_MAX  400
#define PATIENT_TURN 200 /* from here on a turn may take time: timers of milliseconds */

static struct fuzz_client clients[CLIENTS];
static struct server *server;

static void require_at(bool condition, int line)
{
    if (condition)
        return;
    (void)fprintf(stderr, "fuzz_session.c:%d: this does not hold\n", line);
    abort();
}

#define require(condition) require_at(condition, __LINE__)

static size_t open_descriptors(void)
{
    size_t count = 0;
    DIR *directory = opendir("/proc/self/fd");

    for (struct dirent *entry = readdir(directory); entry; entry = readdir(directory))
        count += entry->d_name[0] != '.';
    (void)closedir(directory);
    return count;
}

/* --- the front ------------------------------------------------------------------------------- */

/* Few of everything, so that limits are met. */
static void set_limits(struct quota_rules *rules)
{
    static const uint64_t limits[QUOTA_COUNT] = {
        [QUOTA_CLIENTS] = 3,
        [QUOTA_JOBS] = 12,
        [QUOTA_BUFFERS] = 8,
        [QUOTA_DESCRIPTORS] = 16,
        [QUOTA_HOST_BYTES] = 1 << 20,
        [QUOTA_DEVICE_BYTES] = 1 << 20,
        [QUOTA_IMPORTED_BYTES] = 8192,
        [QUOTA_INLINE_BYTES] = 1 << 20,
        [QUOTA_MESSAGE_BYTES] = 1 << 20,
        [QUOTA_OUTPUT_BYTES] = 1 << 20,
    };

    memcpy(rules->common.policy.limits, limits, sizeof(limits));
    rules->common.has_limit = (1u << QUOTA_COUNT) - 1;
    rules->common.policy.trusts_ipc = rules->common.has_trusts_ipc = true;
}

static void open_server(void)
{
    static struct options options;
    static char message[OPTIONS_MESSAGE_MAX];
    static char *argv[] = {(char *)"gemmd",
                           (char *)"--config",
                           (char *)"/dev/null",
                           (char *)"--device",
                           (char *)"cpu",
                           (char *)"--cache",
                           (char *)"/dev/null/cache",
                           (char *)"--state",
                           (char *)"/dev/null/state",
                           (char *)"--socket",
                           (char *)"/dev/null/socket",
                           NULL};

    require(options_parse(&options, ARRAY_SIZE(argv) - 1, argv, message) == 0);
    set_limits(&options.rules);
    require(server_new(&server, &options) == 0);
    worker_start(&server->worker);
}

static void turn(void)
{
    (void)uv_run(&server->loop, UV_RUN_NOWAIT);
}

static bool is_over(void)
{
    return uv_loop_alive(&server->loop) == 0;
}

static void finish(bool (*is_done)(void))
{
    for (int i = 0; i < TURNS_MAX && !is_done(); i++) {
        bool is_any = fake_worker_work();

        turn();
        if (!is_any && i > PATIENT_TURN)
            (void)usleep(1000);
    }
    require(is_done());
}

static bool is_quiet(void)
{
    return server->state != SERVER_RUNNING ||
           (server->session_count == 0 && server->queue.count == 0 && server->staging.bytes == 0);
}

/* What is left belongs to buffers with a name, and creations that the worker is still to answer. */
static void require_nothing_charged(void)
{
    static const enum quota_resource nothing[] = {QUOTA_CLIENTS, QUOTA_JOBS, QUOTA_INLINE_BYTES,
                                                  QUOTA_MESSAGE_BYTES, QUOTA_OUTPUT_BYTES};

    for (size_t i = 0; i < ARRAY_SIZE(nothing); i++)
        require(server->quota.used[nothing[i]] == 0);
    require(server->quota.used[QUOTA_BUFFERS] == server->buffers.count);
    require(server->quota.used[QUOTA_DESCRIPTORS] <= server->buffers.count); /* small ones share */
}

static void close_server(void)
{
    if (server->state == SERVER_RUNNING)
        server->terminate.signal_cb(&server->terminate, SIGTERM);
    finish(is_over);
    require(uv_loop_close(&server->loop) == 0);
    server = server_free(server);
    fake_worker_reset();
}

/* --- the course ------------------------------------------------------------------------------ */

static void connect_client(struct fuzz_client *client, struct session_input *input)
{
    int ends[2];
    uid_t uid = 1 + input_below(input, 2);

    if (server->state != SERVER_RUNNING)
        return; /* nobody listens */
    require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
    require(session_new(server, ends[0], uid, uid, 1) == 0);
    *client = (struct fuzz_client){.fd = ends[1], .next_id = 1};
    if (input_byte(input) % 8 != 0)
        fuzz_client_hello(client);
}

static void act(struct session_input *input)
{
    uint8_t choice = input_byte(input);
    struct fuzz_client *client = &clients[choice / 16 % CLIENTS];

    if (choice % 16 < 5)
        fake_worker_act(input);
    else if (choice % 16 == 5)
        (void)fake_worker_work();
    else if (client->fd < 0)
        connect_client(client, input);
    else if (choice % 16 == 6)
        fuzz_client_close(client);
    else if (choice % 16 < 9)
        fuzz_client_read(client);
    else
        fuzz_client_act(client, input);
}

/* What libuv keeps for the process is there from the first loop on. */
static void warm_up(void)
{
    static bool is_warm;

    if (is_warm)
        return;
    is_warm = true;
    log_init("fuzz", LOG_LEVEL_ERROR);
    open_server();
    close_server();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct session_input input = {data, size};
    size_t before;

    warm_up();
    before = open_descriptors();
    for (size_t i = 0; i < CLIENTS; i++)
        clients[i] = (struct fuzz_client){.fd = -1};
    open_server();
    for (int i = 0; i < ACTIONS_MAX && !input_is_over(&input); i++) {
        act(&input);
        turn();
    }
    for (size_t i = 0; i < CLIENTS; i++)
        fuzz_client_close(&clients[i]);
    finish(is_quiet);
    if (server->state == SERVER_RUNNING)
        require_nothing_charged();
    close_server();
    require(open_descriptors() == before);
    return 0;
}
