/*
 * Children that fail in every way a process can, and the real one with NVRTC.
 */
#include "compiler_fixture.h"

/* --- failures -------------------------------------------------------------------------------- */

static void check_failure(const char *mode, enum status status, const char *says)
{
    struct fixture fixture;
    struct compiler_options options;
    struct answer answer;

    set_mode(mode);
    set_up(&fixture);
    options = options_of(&fixture);
    if (status == STATUS_COMPILE_TIMEOUT)
        options.time_limit_seconds = 0.3;
    start_with(&fixture, &options);
    scratch_write_text(&fixture.scratch, "once", "");
    cr_assert_eq(setenv("GEMMD_TEST_ONCE", scratch_path(&fixture.scratch, "once").text, 1), 0);
    answer = ask(&fixture, 0);
    cr_assert_eq(answer.status, status, "%s: %s", mode, answer.message);
    cr_assert_not_null(strstr(answer.message, says), "%s: %s", mode, answer.message);
    cr_assert_eq(ask_until_in_time(&fixture, 0).status, STATUS_OK, "%s: the next request works",
                 mode);
    tear_down(&fixture);
}

Test(compiler_child, a_child_that_fails_costs_one_answer)
{
    check_failure("crash", STATUS_COMPILE_FAILED, "died of signal 11");
    check_failure("exit", STATUS_COMPILE_FAILED, "exited with status 3");
    check_failure("hang", STATUS_COMPILE_TIMEOUT, "time limit of 0.3 s");
    check_failure("junk", STATUS_COMPILE_FAILED, "a message that is none");
    check_failure("huge", STATUS_COMPILE_FAILED, "a message that is none");
    check_failure("hello-again", STATUS_COMPILE_FAILED, "a hello that is none");
    check_failure("half", STATUS_COMPILE_FAILED, "exited with status 0");
    check_failure("mute", STATUS_COMPILE_FAILED, "died of signal 9");
    check_failure("fail", STATUS_COMPILE_FAILED, "a log");
}

Test(compiler_child, an_answer_counts_although_its_child_exits_after_it)
{
    struct fixture fixture;

    set_mode("answer-and-exit");
    start(&fixture);
    for (unsigned i = 0; i < 4; i++) {
        cr_assert_eq(ask(&fixture, i).status, STATUS_OK, "%s", fixture.answers[i].message);
        run_until_idle(&fixture);
    }
    tear_down(&fixture);
}

/* Neither did the child come to anything, nor was it heard. */
Test(compiler_child, time_in_which_the_machine_stood_still_is_not_its_limit)
{
    struct fixture fixture;
    struct compiler_options options;

    set_mode("answer");
    set_up(&fixture);
    options = options_of(&fixture);
    options.time_limit_seconds = 1;
    start_with(&fixture, &options);
    request(&fixture, 0);
    (void)usleep(1500000);
    run_until(&fixture, 1);
    cr_expect_eq(fixture.answers[0].status, STATUS_OK, "%s", fixture.answers[0].message);
    tear_down(&fixture);
}

Test(compiler_child, one_crash_does_not_touch_the_other_requests)
{
    struct fixture fixture;
    unsigned failed = 0;

    set_mode("crash");
    start(&fixture);
    scratch_write_text(&fixture.scratch, "once", "");
    cr_assert_eq(setenv("GEMMD_TEST_ONCE", scratch_path(&fixture.scratch, "once").text, 1), 0);
    for (unsigned i = 0; i < 8; i++)
        request(&fixture, i);
    run_until(&fixture, 8);
    for (unsigned i = 0; i < 8; i++)
        failed += fixture.answers[i].status != STATUS_OK;
    cr_assert_eq(failed, 1);
    cr_assert_eq(statistics_of(&fixture).crashes, 1);
    cr_assert_eq(statistics_of(&fixture).compiled, 7);
    tear_down(&fixture);
}

static void check_no_compiler(const char *mode, const char *says)
{
    struct fixture fixture;
    struct compiler_options options;
    struct answer answer;

    set_mode(mode);
    set_up(&fixture);
    options = options_of(&fixture);
    if (strcmp(mode, "hang-early") == 0)
        options.time_limit_seconds = 0.3;
    if (strcmp(mode, "missing") == 0)
        options.program = "/nonexistent/gemmd";
    start_with(&fixture, &options);
    for (unsigned i = 0; i < 2; i++) {
        answer = ask(&fixture, 0);
        cr_assert_neq(answer.status, STATUS_OK);
        cr_assert_not_null(strstr(answer.message, says), "%s: %s", mode, answer.message);
    }
    tear_down(&fixture);
}

Test(compiler_child, says_why_there_is_no_compiler)
{
    check_no_compiler("missing", "cannot be started: no such file");
    check_no_compiler("die-early", "exited with status 4");
    check_no_compiler("hang-early", "time limit");
    check_no_compiler("other-version", "another version");
    check_no_compiler("no-nvrtc", "NVRTC is not here");
}

Test(compiler_child, recovers_when_the_program_can_be_started_again)
{
    struct fixture fixture;

    set_mode("die-early");
    start(&fixture);
    cr_assert_eq(ask(&fixture, 0).status, STATUS_COMPILE_FAILED);
    set_mode("answer");
    cr_assert_eq(ask(&fixture, 0).status, STATUS_OK);
    set_mode("die-early");
    run_until_idle(&fixture);
    cr_assert_eq(ask(&fixture, 0).status, STATUS_OK, "from the cache");
    cr_assert_eq(ask(&fixture, 1).status, STATUS_COMPILE_FAILED);
    tear_down(&fixture);
}

/* --- with NVRTC ------------------------------------------------------------------------------ */

static void start_real(struct fixture *fixture, struct compiler_options *options)
{
    set_mode(NULL);
    set_up(fixture);
    *options = options_of(fixture);
    options->idle_seconds = 5; /* one child for the whole test */
    start_with(fixture, options);
    compiler_warm(fixture->compiler);
    while (!statistics_of(fixture).has_nvrtc && uv_run(&fixture->loop, UV_RUN_ONCE) != 0)
        ; /* without NVRTC the child ends, and with it the loop */
    if (!statistics_of(fixture).has_nvrtc) {
        tear_down(fixture);
        cr_skip_test("needs NVRTC");
    }
}

Test(compiler_child, compiles_with_nvrtc_in_its_child)
{
    struct fixture fixture;
    struct compiler_options options;

    start_real(&fixture, &options);
    cr_assert_eq(ask(&fixture, 0).status, STATUS_OK, "%s", fixture.answers[0].message);
    cr_assert_gt(fixture.answers[0].size, 500);
    tear_down(&fixture);
}

Test(compiler_child, the_log_of_a_failed_compile_reaches_the_asker)
{
    struct fixture fixture;
    struct compiler_options options;

    start_real(&fixture, &options);
    stop_compiler(&fixture);
    write_kernels(&fixture, "data[0] = missing_name;");
    start_with(&fixture, &options);
    cr_assert_eq(ask(&fixture, 0).status, STATUS_COMPILE_FAILED);
    cr_assert_not_null(strstr(fixture.answers[0].message, "missing_name"));
    cr_assert_eq(statistics_of(&fixture).failed, 1);
    tear_down(&fixture);
}

Test(compiler_child, never_stores_a_kernel_under_the_key_of_another)
{
    struct fixture fixture;
    struct compiler_options options;

    start_real(&fixture, &options);
    stop_compiler(&fixture);
    start_with(&fixture, &options);
    write_kernels(&fixture, "data[0] = 2 * VALUE;");
    cr_assert_eq(ask(&fixture, 0).status, STATUS_COMPILE_FAILED);
    cr_assert_not_null(strstr(fixture.answers[0].message, "restart"));
    tear_down(&fixture);
}

Test(compiler_child, a_moved_installation_compiles_nothing)
{
    struct fixture fixture;
    struct compiler_options options;
    struct scratch_path moved;

    start_real(&fixture, &options);
    (void)ask(&fixture, 0);
    stop_compiler(&fixture);
    moved = scratch_path(&fixture.scratch, "elsewhere");
    cr_assert_eq(rename(options.kernels_directory, moved.text), 0);
    options.kernels_directory = moved.text;
    start_with(&fixture, &options);
    cr_assert_neq(ask(&fixture, 0).source, COMPILER_COMPILED);
    tear_down(&fixture);
}

/* A sanitizer takes an address space of its own, and keeps freed memory for a while. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
Test(compiler_child, the_memory_limit_ends_a_compile_and_not_the_daemon)
{
    struct fixture fixture;
    struct compiler_options options;
    struct answer answer;

    start_real(&fixture, &options);
    stop_compiler(&fixture);
    options.memory_limit_bytes = 160u << 20; /* the library fits, this compile does not */
    write_kernels(&fixture, "\n#define TEN(x) x x x x x x x x x x\n"
                            "TEN(TEN(TEN(TEN(data[count] = data[count + 1] * data[count];))))");
    start_with(&fixture, &options);
    answer = ask(&fixture, 0);
    cr_assert(answer.status == STATUS_COMPILE_TIMEOUT || answer.status == STATUS_COMPILE_FAILED,
              "%d %s", answer.status, answer.message);
    cr_assert_not_null(strstr(answer.message, "memory limit"), "%s", answer.message);
    stop_compiler(&fixture);
    options.memory_limit_bytes = 2ull << 30;
    write_kernels(&fixture, "data[0] = VALUE;");
    start_with(&fixture, &options);
    cr_assert_eq(ask(&fixture, 0).status, STATUS_OK);
    tear_down(&fixture);
}

/* Resident bytes of the only child of this process, by way of its parent's list. */
static long child_resident_pages(void)
{
    char path[128];
    int pid = 0;
    long size = 0, resident = 0;
    FILE *file;

    (void)snprintf(path, sizeof(path), "/proc/self/task/%d/children", getpid());
    file = fopen(path, "r");
    cr_assert(file && fscanf(file, "%d", &pid) == 1);
    (void)fclose(file);
    (void)snprintf(path, sizeof(path), "/proc/%d/statm", pid);
    file = fopen(path, "r");
    cr_assert(file && fscanf(file, "%ld %ld", &size, &resident) == 2);
    (void)fclose(file);
    return resident;
}

Test(compiler_child, memory_of_a_child_stays_flat, .timeout = 100)
{
    struct fixture fixture;
    struct compiler_options options;
    const char *rounds = getenv("GEMMD_COMPILE_ROUNDS"); /* 500 for the full test */
    unsigned count = rounds ? (unsigned)atoi(rounds) : 40;
    long after_warm_up = 0, at_end;

    start_real(&fixture, &options);
    stop_compiler(&fixture);
    options.children = 1;
    start_with(&fixture, &options);
    for (unsigned i = 0; i < count; i++) {
        struct answer answer = ask(&fixture, i % 8);

        cr_assert_eq(answer.status, STATUS_OK);
        compiler_reject(fixture.compiler, &answer.key);
        run_until(&fixture, fixture.count);
        if (i == count / 2)
            after_warm_up = child_resident_pages();
        fixture.count = 0;
    }
    at_end = child_resident_pages();
    cr_assert_lt(at_end - after_warm_up, (4l << 20) / sysconf(_SC_PAGESIZE),
                 "grew by %ld pages over %u compiles", at_end - after_warm_up, count / 2);
    tear_down(&fixture);
}
#endif
