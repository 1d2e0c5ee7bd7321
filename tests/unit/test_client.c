/*
 * libgemmd: connections, errors, answers. Products, buffers and broken connections have files of
 * their own.
 */
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client_fixture.h"

/* --- numbers and names ----------------------------------------------------------------------- */

#define STATUS(name, number, meaning)                                                              \
    static_assert(GEMMD_##name == (number) && STATUS_##name == (number), "gemmd.h says the same");
#include "../../daemon/core/status.def"
#undef STATUS

static_assert((int)GEMMD_DTYPE_DEFAULT == DTYPE_NONE, "gemmd.h says the same");
static_assert((int)GEMMD_BF16 == DTYPE_BF16, "gemmd.h says the same");
static_assert((int)GEMMD_FP16 == DTYPE_FP16, "gemmd.h says the same");
static_assert((int)GEMMD_FP32 == DTYPE_FP32, "gemmd.h says the same");
static_assert((int)GEMMD_FP64 == DTYPE_FP64, "gemmd.h says the same");
static_assert((int)GEMMD_INT8 == DTYPE_INT8, "gemmd.h says the same");
static_assert((int)GEMMD_INT32 == DTYPE_INT32 && DTYPE_COUNT == 7, "gemmd.h says the same");
static_assert((int)GEMMD_HOST == BUFFER_HOST, "gemmd.h says the same");
static_assert((int)GEMMD_DEVICE == BUFFER_DEVICE, "gemmd.h says the same");

Test(client, names_every_status_and_type)
{
#define STATUS(name, number, meaning) cr_assert_str_eq(gemmd_strerror(GEMMD_##name), #name);
#include "../../daemon/core/status.def"
#undef STATUS
    cr_assert_str_eq(gemmd_strerror((gemmd_status)999), "UNKNOWN");
    cr_assert_str_eq(gemmd_dtype_name(GEMMD_BF16), "bf16");
    cr_assert_eq(gemmd_dtype_size(GEMMD_FP64), 8);
    cr_assert_eq(gemmd_dtype_size(GEMMD_DTYPE_DEFAULT), 0);
}

/* --- connect --------------------------------------------------------------------------------- */

Test(client, tells_what_the_daemon_says_of_itself)
{
    gemmd_info info = {.size = sizeof(info)};

    connect_to(NULL);
    cr_assert_eq(gemmd_get_info(connection, &info), GEMMD_OK);
    cr_assert_str_eq(info.daemon, "9.8.7");
    cr_assert_str_eq(info.device, "a thread");
    cr_assert_str_eq(info.device_kind, "cpu");
    cr_assert_eq(info.in_flight_max, 256);
    cr_assert(info.ready);
    disconnect();
}

Test(client, asks_again_while_the_daemon_is_starting)
{
    gemmd_info info = {.size = sizeof(info)};

    connect_to(&(struct fake_options){.is_starting = true});
    cr_assert_eq(gemmd_get_info(connection, &info), GEMMD_OK);
    cr_assert(info.ready);
    disconnect();
}

Test(client, writes_no_more_than_the_callers_structure_holds)
{
    gemmd_info info[2];

    memset(info, 0x5a, sizeof(info));
    connect_to(NULL);
    info[0].size = offsetof(gemmd_info, device);
    cr_assert_eq(gemmd_get_info(connection, info), GEMMD_OK);
    cr_assert_eq(info[0].device[0], 0x5a);
    info[0].size = 1;
    cr_assert_eq(gemmd_get_info(connection, info), GEMMD_INVALID_ARGUMENT);
    disconnect();
}

Test(client, names_the_limit_of_a_socket_path)
{
    char path[SOCKET_PATH_MAX + 2];
    gemmd_error error;

    memset(path, 'x', sizeof(path) - 1);
    path[sizeof(path) - 1] = '\0';
    cr_assert_eq(gemmd_connect(path, &connection, &error), GEMMD_INVALID_ARGUMENT);
    cr_assert_null(connection);
    cr_assert_str_eq(error.argument, "socket");
    cr_assert(strstr(error.message, "108") && strstr(error.message, "107"), "%s", error.message);
}

Test(client, says_disconnected_where_nobody_listens)
{
    gemmd_error error;

    cr_assert_eq(gemmd_connect("/nowhere/at/all", &connection, &error), GEMMD_DISCONNECTED);
    cr_assert(strstr(error.message, "/nowhere/at/all"), "%s", error.message);
    cr_assert_eq(gemmd_connect("/dev/null", &connection, NULL), GEMMD_DISCONNECTED);
}

Test(client, refuses_a_protocol_it_does_not_know)
{
    struct fake_options options = {.version = 99};
    gemmd_error error;

    fake_daemon_start(&fake, &options);
    cr_assert_eq(gemmd_connect(fake.path, &connection, &error), GEMMD_UNSUPPORTED);
    cr_assert(strstr(error.message, "99"), "%s", error.message);
    fake_daemon_stop(&fake);
}

static int open_descriptors(bool *ret_all_cloexec)
{
    DIR *directory = opendir("/proc/self/fd");
    struct dirent *entry;
    int count = 0;

    *ret_all_cloexec = true;
    while ((entry = readdir(directory)) != NULL) {
        int fd = atoi(entry->d_name);

        count++;
        if (fd > 2 && !(fcntl(fd, F_GETFD) & FD_CLOEXEC))
            *ret_all_cloexec = false;
    }
    (void)closedir(directory);
    return count;
}

Test(client, leaves_no_descriptor_behind)
{
    gemmd_product product = tiny();
    gemmd_buffer *buffer;
    bool before_cloexec, cloexec;
    int before;

    fake_daemon_start(&fake, NULL);
    before = open_descriptors(&before_cloexec);
    cr_assert_eq(gemmd_connect(fake.path, &connection, NULL), GEMMD_OK);
    cr_assert_geq(gemmd_fd(connection), 0);
    cr_assert_eq(gemmd_buffer_create(connection, GEMMD_HOST, 4096, NULL, 0, &buffer), GEMMD_OK);
    cr_assert_eq(gemmd_gemm(connection, &product, NULL), GEMMD_OK);
    (void)open_descriptors(&cloexec);
    cr_assert(cloexec || !before_cloexec);
    gemmd_close(connection);
    fake_daemon_stop(&fake);
    cr_assert_eq(open_descriptors(&cloexec), before - 1, "the listener is closed too");
}

/* --- answers --------------------------------------------------------------------------------- */

Test(client, takes_answers_in_any_order)
{
    float a[8], d[8];
    gemmd_job jobs[8];

    connect_to(&(struct fake_options){.hold = 8});
    for (int i = 0; i < 8; i++) {
        gemmd_product product = tiny();

        a[i] = (float)i;
        product.a.data = &a[i];
        product.d.data = &d[i];
        cr_assert_eq(gemmd_submit(connection, &product, &jobs[i]), GEMMD_OK);
    }
    /* Answered last first, waited for in an order of its own. */
    for (int i = 0; i < 8; i++) {
        int job = i * 3 % 8;

        cr_assert_eq(gemmd_wait(connection, jobs[job], -1, NULL), GEMMD_OK);
        cr_assert_eq(d[job], 5.0f * (float)job);
    }
    disconnect();
}

Test(client, leaves_a_job_under_way_when_the_time_is_up)
{
    gemmd_product product = tiny();
    gemmd_job first, second;
    bool done = true;

    connect_to(&(struct fake_options){.hold = 2});
    cr_assert_eq(gemmd_submit(connection, &product, &first), GEMMD_OK);
    cr_assert_eq(gemmd_wait(connection, first, 0, NULL), GEMMD_TIMEOUT);
    cr_assert_eq(gemmd_wait(connection, first, 0.01, NULL), GEMMD_TIMEOUT);
    cr_assert_eq(gemmd_poll(connection, first, &done), GEMMD_OK);
    cr_assert_not(done);
    cr_assert_eq(gemmd_submit(connection, &product, &second), GEMMD_OK);
    cr_assert_eq(gemmd_wait(connection, first, 5, NULL), GEMMD_OK);
    cr_assert_eq(gemmd_wait(connection, first, 5, NULL), GEMMD_NOT_FOUND, "taken already");
    cr_assert_eq(gemmd_wait(connection, second, 5, NULL), GEMMD_OK);
    disconnect();
}

Test(client, refuses_one_job_more_than_the_limit)
{
    gemmd_product product = tiny();
    gemmd_job jobs[4], more;

    connect_to(&(struct fake_options){.in_flight_max = 4});
    for (int i = 0; i < 4; i++)
        cr_assert_eq(gemmd_submit(connection, &product, &jobs[i]), GEMMD_OK);
    cr_assert_eq(gemmd_submit(connection, &product, &more), GEMMD_LIMIT);
    cr_assert(strstr(gemmd_last_error(connection)->message, "4"));
    cr_assert_eq(gemmd_wait(connection, jobs[2], -1, NULL), GEMMD_OK);
    cr_assert_eq(gemmd_submit(connection, &product, &more), GEMMD_OK);
    disconnect();
}

Test(client, makes_room_for_other_requests_beside_a_full_queue)
{
    gemmd_product product = tiny();
    gemmd_job jobs[2];
    char *json;

    connect_to(&(struct fake_options){.in_flight_max = 2, .delay_ms = 20});
    for (int i = 0; i < 2; i++)
        cr_assert_eq(gemmd_submit(connection, &product, &jobs[i]), GEMMD_OK);
    cr_assert_eq(gemmd_status_json(connection, &json), GEMMD_OK);
    gemmd_free(json);
    disconnect();
}

static bool is_readable(int fd, int timeout_ms)
{
    struct pollfd polled = {.fd = fd, .events = POLLIN};

    return poll(&polled, 1, timeout_ms) == 1;
}

Test(client, keeps_the_descriptor_readable_until_answers_are_taken)
{
    gemmd_product product = tiny();
    gemmd_job job;
    char *json;
    bool done;
    int fd;

    connect_to(NULL);
    fd = gemmd_fd(connection);
    cr_assert_not(is_readable(fd, 0));
    cr_assert_eq(gemmd_submit(connection, &product, &job), GEMMD_OK);
    cr_assert(is_readable(fd, 5000));
    /* This takes the job's answer off the socket, before its own. */
    cr_assert_eq(gemmd_status_json(connection, &json), GEMMD_OK);
    gemmd_free(json);
    cr_assert(is_readable(fd, 0));
    cr_assert_eq(gemmd_poll(connection, job, &done), GEMMD_OK);
    cr_assert(done);
    cr_assert_eq(gemmd_wait(connection, job, 0, NULL), GEMMD_OK);
    cr_assert_not(is_readable(fd, 0));
    disconnect();
}

Test(client, passes_on_what_the_daemon_refuses)
{
    struct fake_options options = {
        .refusal = {.status = STATUS_GPU_FAULT, .argument = "d", .message = "it burnt"}};
    gemmd_product product = tiny();

    connect_to(&options);
    one_d = 42;
    cr_assert_eq(gemmd_gemm(connection, &product, NULL), GEMMD_GPU_FAULT);
    cr_assert_str_eq(gemmd_last_error(connection)->argument, "d");
    cr_assert_str_eq(gemmd_last_error(connection)->message, "it burnt");
    cr_assert_eq(one_d, 42, "a refused product writes nothing");
    disconnect();
}

Test(client, names_what_the_daemon_refuses_as_its_header_does)
{
    struct fake_options options = {
        .refusal = {.status = STATUS_DEADLINE, .argument = "deadline_us", .message = "too late"}};
    gemmd_product product = tiny();

    connect_to(&options);
    cr_assert_eq(gemmd_gemm(connection, &product, NULL), GEMMD_DEADLINE);
    cr_assert_str_eq(gemmd_last_error(connection)->argument, "deadline_seconds");
    disconnect();
}

/* Its modules trace errors, as they do in the daemon; a program that logs has said so. */
Test(client, prints_nothing_whatever_fails)
{
    static char name[(FRAME_LENGTH_MAX) + 2], printed[256];
    gemmd_buffer *buffer;
    int ends[2];

    connect_to(NULL);
    memset(name, 'n', sizeof(name) - 1);
    cr_assert_eq(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    cr_assert_geq(dup2(ends[1], STDERR_FILENO), 0);
    cr_assert_eq(gemmd_buffer_open(connection, name, false, &buffer), GEMMD_LIMIT);
    cr_assert_lt(read(ends[0], printed, sizeof(printed) - 1), 0, "%s", printed);
    disconnect();
}

Test(client, refuses_null_where_something_is_needed)
{
    gemmd_product product = tiny();
    gemmd_job job;

    cr_assert_eq(gemmd_gemm(NULL, &product, NULL), GEMMD_INVALID_ARGUMENT);
    cr_assert_eq(gemmd_connect("/x", NULL, NULL), GEMMD_INVALID_ARGUMENT);
    cr_assert_not_null(gemmd_last_error(NULL));
    gemmd_close(NULL);
    gemmd_buffer_free(NULL);
    connect_to(NULL);
    cr_assert_eq(gemmd_submit(connection, NULL, &job), GEMMD_INVALID_ARGUMENT);
    cr_assert_eq(gemmd_submit(connection, &product, NULL), GEMMD_INVALID_ARGUMENT);
    cr_assert_eq(gemmd_poll(connection, 1, NULL), GEMMD_NOT_FOUND);
    cr_assert_eq(gemmd_status_json(connection, NULL), GEMMD_INVALID_ARGUMENT);
    disconnect();
}

/* --- administration -------------------------------------------------------------------------- */

Test(client, asks_the_daemon_for_its_trees)
{
    gemmd_product product = tiny();
    uint64_t removed = 0;
    double seconds = 0;
    char *json;

    connect_to(NULL);
    cr_assert_eq(gemmd_stats_json(connection, &json), GEMMD_OK);
    cr_assert(strstr(json, "\"stats\""), "%s", json);
    gemmd_free(json);
    product.a.data = product.b.data = product.d.data = NULL;
    cr_assert_eq(gemmd_explain_json(connection, &product, &json), GEMMD_OK);
    cr_assert(strstr(json, "\"explain\""), "%s", json);
    gemmd_free(json);
    cr_assert_eq(gemmd_tune_json(connection, &product, 3, &json), GEMMD_OK);
    cr_assert(strstr(json, "\"tune\""), "%s", json);
    gemmd_free(json);
    cr_assert_eq(gemmd_cache_list_json(connection, true, &json), GEMMD_OK);
    cr_assert(strstr(json, "\"cache.verify\""), "%s", json);
    gemmd_free(json);
    cr_assert_eq(gemmd_cache_prewarm(connection, "sm90.x", &seconds), GEMMD_OK);
    cr_assert_eq(seconds, 1.5);
    cr_assert_eq(gemmd_cache_prune(connection, 1, &removed), GEMMD_OK);
    cr_assert_eq(removed, 3);
    disconnect();
}
