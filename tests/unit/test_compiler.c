#include "compiler_fixture.h"

#include <sys/wait.h>

/* --- one flight ------------------------------------------------------------------------------ */

Test(compiler, compiles_once_then_serves_from_memory_then_from_disk)
{
    struct fixture fixture;

    set_mode("answer");
    start(&fixture);
    cr_assert_eq(ask(&fixture, 0).source, COMPILER_COMPILED);
    cr_assert_eq(ask(&fixture, 0).source, COMPILER_FROM_MEMORY);
    stop_compiler(&fixture);
    cache_free(fixture.cache);
    cr_assert_eq(cache_new(&fixture.cache, scratch_path(&fixture.scratch, "cache").text, 1 << 20),
                 0);
    {
        struct compiler_options options = options_of(&fixture);

        start_with(&fixture, &options);
    }
    cr_assert_eq(ask(&fixture, 0).source, COMPILER_FROM_DISK);
    cr_assert(key_equal(&fixture.answers[0].key, &fixture.answers[2].key));
    cr_assert_eq(fixture.answers[0].size, fixture.answers[2].size);
    cr_assert_eq(statistics_of(&fixture).compiled, 0);
    tear_down(&fixture);
}

Test(compiler, sixteen_askers_of_one_shape_cost_one_compile)
{
    struct fixture fixture;

    set_mode("answer");
    start(&fixture);
    count_requests(&fixture);
    for (unsigned i = 0; i < 16; i++)
        request(&fixture, 0);
    run_until(&fixture, 16);
    for (unsigned i = 0; i < 16; i++)
        cr_assert_eq(fixture.answers[i].status, STATUS_OK);
    cr_assert_eq(requests_of_children(&fixture), 1);
    cr_assert_eq(statistics_of(&fixture).compiled, 1);
    cr_assert_eq(statistics_of(&fixture).requests, 16);
    tear_down(&fixture);
}

Test(compiler, different_shapes_each_get_their_own)
{
    struct fixture fixture;

    set_mode("answer");
    start(&fixture);
    count_requests(&fixture);
    for (unsigned i = 0; i < 8; i++)
        request(&fixture, i);
    run_until(&fixture, 8);
    for (unsigned i = 1; i < 8; i++)
        cr_assert(!key_equal(&fixture.answers[0].key, &fixture.answers[i].key));
    cr_assert_eq(requests_of_children(&fixture), 8);
    tear_down(&fixture);
}

Test(compiler, two_processes_on_one_directory_compile_once)
{
    struct fixture fixture;
    struct compiler_options options;
    pid_t children[4];
    int status;

    set_mode("answer");
    set_up(&fixture);
    count_requests(&fixture);
    for (unsigned i = 0; i < 4; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            struct fixture other = {.scratch = fixture.scratch};

            if (uv_loop_init(&other.loop) != 0 ||
                cache_new(&other.cache, scratch_path(&other.scratch, "cache").text, 1 << 20) != 0)
                _exit(1);
            options = options_of(&other);
            start_with(&other, &options);
            status = ask(&other, 0).status;
            stop_compiler(&other); /* what it compiled is stored now */
            _exit(status == STATUS_OK ? 0 : 2);
        }
    }
    for (unsigned i = 0; i < 4; i++) {
        cr_assert_eq(waitpid(children[i], &status, 0), children[i]);
        cr_assert_eq(status, 0);
    }
    cr_assert_eq(requests_of_children(&fixture), 1);
    tear_down(&fixture);
}

Test(compiler, does_not_wait_for_ever_for_a_stuck_process)
{
    struct fixture fixture;
    struct compiler_options options;
    struct cache *other = NULL;
    struct key key;
    int lock = -1;

    set_mode("answer");
    start(&fixture);
    key = ask(&fixture, 0).key;
    stop_compiler(&fixture);
    cr_assert_eq(cache_new(&other, scratch_path(&fixture.scratch, "cache").text, 1 << 20), 0);
    cache_remove(fixture.cache, &key);
    cr_assert_eq(cache_flight_begin(other, &key, &lock), 0);
    options = options_of(&fixture);
    options.time_limit_seconds = 0.2;
    start_with(&fixture, &options);
    cr_assert_eq(ask_until_in_time(&fixture, 0).source, COMPILER_COMPILED);
    cache_flight_end(other, lock);
    cache_free(other);
    tear_down(&fixture);
}

/* --- which compiler -------------------------------------------------------------------------- */

Test(compiler, a_prewarmed_cache_serves_without_nvrtc)
{
    struct fixture fixture;
    struct compiler_options options;

    set_mode("answer");
    start(&fixture);
    cr_assert_eq(ask(&fixture, 0).source, COMPILER_COMPILED);
    run_until_idle(&fixture);
    stop_compiler(&fixture);
    set_mode("no-nvrtc");
    options = options_of(&fixture);
    start_with(&fixture, &options);
    cr_assert_eq(ask(&fixture, 0).status, STATUS_OK);
    cr_assert_eq(ask(&fixture, 1).status, STATUS_UNSUPPORTED);
    cr_assert_not_null(strstr(fixture.answers[2].message, "sm90a"), "names the configuration");
    cr_assert(!statistics_of(&fixture).has_nvrtc);
    cr_assert_eq(statistics_of(&fixture).identity.major, 99, "what the cache remembers");
    tear_down(&fixture);
}

Test(compiler, follows_a_compiler_that_is_replaced)
{
    struct fixture fixture;

    set_mode("answer");
    start(&fixture);
    (void)ask(&fixture, 0);
    run_until_idle(&fixture);
    cr_assert_eq(setenv("GEMMD_TEST_BUILD", "another", 1), 0);
    cr_assert_eq(ask(&fixture, 1).status, STATUS_OK);
    cr_assert_str_eq(statistics_of(&fixture).identity.build, "another");
    cr_assert_eq(ask(&fixture, 0).source, COMPILER_COMPILED, "a new build compiles anew");
    cr_assert(!key_equal(&fixture.answers[0].key, &fixture.answers[2].key));
    tear_down(&fixture);
}

Test(compiler, is_warmed_without_a_request)
{
    struct fixture fixture;

    set_mode("answer");
    start(&fixture);
    cr_assert(!statistics_of(&fixture).has_nvrtc);
    compiler_warm(fixture.compiler);
    run_until_idle(&fixture);
    cr_assert(statistics_of(&fixture).has_nvrtc);
    tear_down(&fixture);
}

/* --- life ------------------------------------------------------------------------------------ */

Test(compiler, nothing_runs_and_nothing_wakes_when_idle)
{
    struct fixture fixture;

    set_mode("answer");
    start(&fixture);
    (void)ask(&fixture, 0);
    run_until_idle(&fixture);
    cr_assert(!uv_loop_alive(&fixture.loop));
    cr_assert_eq(waitpid(-1, NULL, WNOHANG), -1, "no child is left");
    cr_assert_eq(statistics_of(&fixture).crashes, 0, "a retired child is no crash");
    cr_assert_eq(ask(&fixture, 1).status, STATUS_OK, "and a new one comes when needed");
    tear_down(&fixture);
}

Test(compiler, a_forgotten_context_is_not_called)
{
    struct fixture fixture;

    set_mode("answer");
    start(&fixture);
    request(&fixture, 0);
    compiler_forget(fixture.compiler, &fixture);
    run_until_idle(&fixture);
    cr_assert_eq(fixture.count, 0);
    cr_assert_eq(ask(&fixture, 0).source, COMPILER_FROM_MEMORY, "its work is kept");
    tear_down(&fixture);
}

Test(compiler, a_refused_cubin_is_compiled_anew)
{
    struct fixture fixture;
    struct key key;

    set_mode("answer");
    start(&fixture);
    key = ask(&fixture, 0).key;
    run_until_idle(&fixture);
    compiler_reject(fixture.compiler, &key);
    cr_assert_eq(ask(&fixture, 0).source, COMPILER_COMPILED);
    tear_down(&fixture);
}

Test(compiler, closing_answers_what_is_pending)
{
    static const char *const modes[] = {"answer", "hang", "hang-early", "no-nvrtc"};

    for (size_t m = 0; m < ARRAY_SIZE(modes); m++)
        for (unsigned turns = 0; turns < 6; turns++) {
            struct fixture fixture;

            set_mode(modes[m]);
            start(&fixture);
            for (unsigned i = 0; i < 4; i++)
                request(&fixture, i / 2);
            for (unsigned i = 0; i < turns; i++)
                (void)uv_run(&fixture.loop, UV_RUN_NOWAIT);
            stop_compiler(&fixture);
            cr_assert_eq(fixture.count, 4);
            for (unsigned i = 0; i < 4; i++)
                cr_assert_neq(fixture.answers[i].status, STATUS_INTERNAL);
            tear_down(&fixture);
        }
}

static void ask_again(const struct cubin *cubin,
                      const struct key *key,
                      enum compiler_source source,
                      double seconds,
                      const struct fault *fault,
                      void *context)
{
    struct fixture *fixture = context;
    struct config config = config_number(0);

    answered(cubin, key, source, seconds, fault, context);
    if (fixture->count < 5)
        cr_assert_eq(compiler_request(fixture->compiler, &config, ask_again, context), 0);
}

static void check_asking_again(const char *mode)
{
    struct fixture fixture;
    struct config config = config_number(0);

    set_mode(mode);
    start(&fixture);
    cr_assert_eq(compiler_request(fixture.compiler, &config, ask_again, &fixture), 0);
    run_until(&fixture, 5);
    tear_down(&fixture);
}

Test(compiler, may_be_asked_from_its_own_answer)
{
    check_asking_again("answer");
    check_asking_again("fail");
}

static void forget_all(const struct cubin *cubin,
                       const struct key *key,
                       enum compiler_source source,
                       double seconds,
                       const struct fault *fault,
                       void *context)
{
    struct fixture *fixture = context;

    answered(cubin, key, source, seconds, fault, context);
    compiler_forget(fixture->compiler, context);
}

Test(compiler, may_be_told_to_forget_from_its_own_answer)
{
    struct fixture fixture;
    struct config config = config_number(0);

    set_mode("answer");
    start(&fixture);
    for (unsigned i = 0; i < 3; i++)
        cr_assert_eq(compiler_request(fixture.compiler, &config, forget_all, &fixture), 0);
    run_until_idle(&fixture);
    cr_assert_eq(fixture.count, 1);
    tear_down(&fixture);
}
