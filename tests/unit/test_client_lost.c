/*
 * libgemmd: connections that broke, and connections of the parent process.
 */
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client_fixture.h"

/* --- fork ------------------------------------------------------------------------------------ */

static int in_child(int (*body)(void))
{
    int status;
    pid_t pid = fork();

    if (pid == 0)
        _exit(body());
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static gemmd_buffer *shared;

static int use_everything(void)
{
    gemmd_product product = tiny();
    gemmd_info info = {.size = sizeof(info)};
    gemmd_export exported = {.size = sizeof(exported)};
    gemmd_import import = GEMMD_IMPORT_INIT;
    gemmd_buffer *buffer;
    gemmd_job job;
    bool done;
    char byte = 0, *json;
    int wrong = 0;

    wrong += gemmd_gemm(connection, &product, NULL) != GEMMD_FORKED;
    wrong += gemmd_submit(connection, &product, &job) != GEMMD_FORKED;
    wrong += gemmd_wait(connection, 1, 0, NULL) != GEMMD_FORKED;
    wrong += gemmd_poll(connection, 1, &done) != GEMMD_FORKED;
    wrong += gemmd_get_info(connection, &info) != GEMMD_FORKED;
    wrong += gemmd_status_json(connection, &json) != GEMMD_FORKED;
    wrong += gemmd_buffer_create(connection, GEMMD_HOST, 1, NULL, 0, &buffer) != GEMMD_FORKED;
    wrong += gemmd_buffer_open(connection, "x", false, &buffer) != GEMMD_FORKED;
    wrong += gemmd_buffer_write(shared, 0, &byte, 1) != GEMMD_FORKED;
    wrong += gemmd_buffer_read(shared, 0, &byte, 1) != GEMMD_FORKED;
    wrong += gemmd_buffer_copy(shared, 0, shared, 8, 1) != GEMMD_FORKED;
    wrong += gemmd_buffer_freeze(shared) != GEMMD_FORKED;
    wrong += gemmd_buffer_export(shared, &exported) != GEMMD_FORKED;
    wrong += gemmd_buffer_register(connection, 0, 1, false, &buffer) != GEMMD_FORKED;
    wrong += gemmd_buffer_import(connection, &import, &buffer) != GEMMD_FORKED;
    wrong += gemmd_submit_many(connection, &product, 1, &job) != GEMMD_FORKED;
    wrong += gemmd_cancel(connection, 1, &done) != GEMMD_FORKED;
    wrong += gemmd_explain_json(connection, &product, &json) != GEMMD_FORKED;
    wrong += gemmd_tune_json(connection, &product, 0, &json) != GEMMD_FORKED;
    wrong += gemmd_cache_prewarm(connection, "x", NULL) != GEMMD_FORKED;
    wrong += gemmd_cache_prune(connection, 0, NULL) != GEMMD_FORKED;
    wrong += gemmd_fd(connection) != -1;
    wrong += gemmd_last_error(connection)->status != GEMMD_FORKED;
    gemmd_buffer_free(shared);
    gemmd_close(connection);
    return wrong;
}

Test(client_lost, answers_forked_in_a_child_and_sends_nothing)
{
    gemmd_product product = tiny();
    unsigned before = 0, after = 0;
    gemmd_job job;

    connect_to(&(struct fake_options){.hold = 1});
    cr_assert_eq(gemmd_buffer_create(connection, GEMMD_HOST, 64, NULL, 0, &shared), GEMMD_OK);
    cr_assert_geq(gemmd_fd(connection), 0);
    cr_assert_eq(gemmd_submit(connection, &product, &job), GEMMD_OK);
    cr_assert_eq(gemmd_buffer_write(shared, 0, "x", 1), GEMMD_OK);
    cr_assert_eq(gemmd_wait(connection, job, -1, NULL), GEMMD_OK);
    for (int i = 0; i < METHOD_COUNT; i++)
        before += atomic_load(&fake.requests[i]);
    fake_daemon_await_rest(&fake);
    cr_assert_eq(in_child(use_everything), 0);
    /* The parent's session lives, and the daemon heard nothing in between. */
    cr_assert_eq(gemmd_gemm(connection, &product, NULL), GEMMD_OK);
    disconnect();
    for (int i = 0; i < METHOD_COUNT; i++)
        after += atomic_load(&fake.requests[i]);
    cr_assert_eq(after, before + 1);
}

static int freeze_shared(void)
{
    return gemmd_buffer_freeze(shared) != GEMMD_FORKED;
}

Test(client_lost, leaves_the_answers_of_its_parent_alone)
{
    gemmd_product product = tiny();
    gemmd_job job;

    connect_to(&(struct fake_options){.delay_ms = 100});
    cr_assert_eq(gemmd_buffer_create(connection, GEMMD_HOST, 64, NULL, 0, &shared), GEMMD_OK);
    product.d = (gemmd_operand){.buffer = shared, .ld = GEMMD_DEFAULT, .stride = GEMMD_DEFAULT};
    cr_assert_eq(gemmd_submit(connection, &product, &job), GEMMD_OK);
    cr_assert_eq(in_child(freeze_shared), 0);
    cr_assert_eq(gemmd_wait(connection, job, 10, NULL), GEMMD_OK);
    disconnect();
}

/* --- lost connections ------------------------------------------------------------------------ */

static void expect_lost(enum fake_misdeed misdeed)
{
    struct fake_options options = {.misdeed = misdeed, .misdeed_after = 1};
    gemmd_product product = tiny();
    gemmd_job answered, pending[3];
    gemmd_buffer *buffer;
    char *data, *json;

    connect_to(&options);
    cr_assert_eq(gemmd_buffer_create(connection, GEMMD_HOST, 64, NULL, 0, &buffer), GEMMD_OK);
    data = gemmd_buffer_data(buffer);
    strcpy(data, "still here");
    cr_assert_eq(gemmd_submit(connection, &product, &answered), GEMMD_OK);
    cr_assert_eq(gemmd_submit(connection, &product, &pending[0]), GEMMD_OK);
    for (int i = 1; i < 3; i++) {
        if (gemmd_submit(connection, &product, &pending[i]) != GEMMD_OK)
            pending[i] = pending[0]; /* lost already */
    }
    cr_assert_eq(gemmd_wait(connection, pending[0], -1, NULL), GEMMD_DISCONNECTED);
    if (pending[1] != pending[0])
        cr_assert_eq(gemmd_wait(connection, pending[1], -1, NULL), GEMMD_DISCONNECTED);
    cr_assert_eq(gemmd_wait(connection, answered, -1, NULL), GEMMD_OK, "it came before the end");
    cr_assert_eq(one_d, 15);
    cr_assert_eq(gemmd_gemm(connection, &product, NULL), GEMMD_DISCONNECTED);
    cr_assert_eq(gemmd_status_json(connection, &json), GEMMD_DISCONNECTED);
    cr_assert_eq(gemmd_last_error(connection)->status, GEMMD_DISCONNECTED);
    cr_assert(strlen(gemmd_last_error(connection)->message) > 10);
    cr_assert_str_eq(data, "still here");
    gemmd_buffer_free(buffer);
    disconnect();
}

Test(client_lost, says_disconnected_when_the_daemon_closes)
{
    expect_lost(FAKE_CLOSES);
}

Test(client_lost, ends_a_connection_that_sends_garbage)
{
    expect_lost(FAKE_SENDS_GARBAGE);
}

Test(client_lost, ends_a_connection_that_sends_requests)
{
    expect_lost(FAKE_SENDS_NO_REPLY);
}

Test(client_lost, ends_a_connection_that_answers_what_nobody_asked)
{
    expect_lost(FAKE_ANSWERS_WHAT_NOBODY_ASKED);
}

/* It would be mapped as the next buffer's memory. */
Test(client_lost, ends_a_connection_that_sends_descriptors_unannounced)
{
    gemmd_product product = tiny();
    gemmd_buffer *buffer;

    connect_to(&(struct fake_options){.misdeed = FAKE_SLIPS_IN_A_DESCRIPTOR});
    cr_assert_eq(gemmd_gemm(connection, &product, NULL), GEMMD_OK, "the answer itself is right");
    cr_assert_eq(gemmd_buffer_create(connection, GEMMD_HOST, 64, NULL, 0, &buffer),
                 GEMMD_DISCONNECTED);
    cr_assert(strstr(gemmd_last_error(connection)->message, "descriptors"));
    disconnect();
}

Test(client_lost, repeats_what_the_daemon_said_before_it_closed)
{
    gemmd_product product = tiny();
    char *json;

    connect_to(&(struct fake_options){.misdeed = FAKE_SAYS_FAREWELL});
    cr_assert_eq(gemmd_gemm(connection, &product, NULL), GEMMD_DISCONNECTED);
    cr_assert(strstr(gemmd_last_error(connection)->message, "no frames"));
    cr_assert_eq(gemmd_stats_json(connection, &json), GEMMD_DISCONNECTED);
    cr_assert(strstr(gemmd_last_error(connection)->message, "no frames"));
    disconnect();
}

Test(client_lost, says_limit_when_the_daemon_takes_no_more_clients)
{
    struct fake_options options = {.misdeed = FAKE_TURNS_AWAY};
    gemmd_error error;

    fake_daemon_start(&fake, &options);
    cr_assert_eq(gemmd_connect(fake.path, &connection, &error), GEMMD_LIMIT);
    cr_assert(strstr(error.message, "too many clients"), "%s", error.message);
    fake_daemon_stop(&fake);
}

Test(client_lost, raises_no_signal_when_the_daemon_is_gone)
{
    gemmd_product product = tiny();

    (void)signal(SIGPIPE, SIG_DFL);
    connect_to(&(struct fake_options){.misdeed = FAKE_CLOSES});
    for (int i = 0; i < 10; i++)
        cr_assert_eq(gemmd_gemm(connection, &product, NULL), GEMMD_DISCONNECTED);
    disconnect();
}
