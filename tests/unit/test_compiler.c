#include "../../daemon/core/log.h"
#include "../../daemon/front/compiler.h"
#include "fake_kernels.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <sys/wait.h>

#define ANSWERS_MAX 64

struct answer {
    enum status status;
    enum compiler_source source;
    struct key key;
    size_t size;
    char message[FAULT_MESSAGE_MAX];
};

/* A front with nothing but a compiler. */
struct fixture {
    struct scratch scratch; /* kernels/ and cache/ */
    uv_loop_t loop;
    struct cache *cache;
    struct compiler *compiler;
    bool is_closed;
    unsigned count;
    struct answer answers[ANSWERS_MAX];
};

static void set_mode(const char *mode)
{
    cr_assert_eq(mode ? setenv("GEMMD_TEST_CHILD", mode, 1) : unsetenv("GEMMD_TEST_CHILD"), 0);
}

static void write_kernels(const struct fixture *fixture, const char *body)
{
    struct scratch kernels = fixture->scratch;

    strcat(kernels.path, "/kernels");
    (void)mkdir(kernels.path, 0700);
    fake_kernels_write(&kernels, body);
}

/* Beside this test, wherever a bundle was unpacked. */
static const char *helper(void)
{
    static char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 32);

    cr_assert_gt(length, 0);
    path[length] = '\0';
    strcpy(strrchr(path, '/'), "/compile_helper");
    return path;
}

static struct compiler_options options_of(struct fixture *fixture)
{
    static struct scratch_path kernels;

    kernels = scratch_path(&fixture->scratch, "kernels");
    return (struct compiler_options){
        .loop = &fixture->loop,
        .program = helper(),
        .kernels_directory = kernels.text,
        .cache = fixture->cache,
        .children = 2,
        .time_limit_seconds = 20,
        .memory_limit_bytes = 2ull << 30,
        .idle_seconds = 0.05,
    };
}

static void set_up(struct fixture *fixture)
{
    *fixture = (struct fixture){.scratch = scratch_new()};
    (void)signal(SIGPIPE, SIG_IGN);
    log_init("test", LOG_LEVEL_ERROR);
    cr_assert_eq(uv_loop_init(&fixture->loop), 0);
    write_kernels(fixture, "data[0] = VALUE;");
    cr_assert_eq(cache_new(&fixture->cache, scratch_path(&fixture->scratch, "cache").text,
                           CACHE_BYTES_DEFAULT),
                 0);
}

static void start_with(struct fixture *fixture, const struct compiler_options *options)
{
    cr_assert_eq(compiler_new(&fixture->compiler, options), 0);
}

static void start(struct fixture *fixture)
{
    struct compiler_options options;

    set_up(fixture);
    options = options_of(fixture);
    start_with(fixture, &options);
}

static void closed(void *context)
{
    ((struct fixture *)context)->is_closed = true;
}

static void stop_compiler(struct fixture *fixture)
{
    compiler_close(fixture->compiler, closed, fixture);
    (void)uv_run(&fixture->loop, UV_RUN_DEFAULT);
    cr_assert(fixture->is_closed);
    fixture->compiler = compiler_free(fixture->compiler);
}

static void tear_down(struct fixture *fixture)
{
    if (fixture->compiler)
        stop_compiler(fixture);
    cr_assert_eq(uv_loop_close(&fixture->loop), 0, "no handle may be left");
    fixture->cache = cache_free(fixture->cache);
    scratch_remove(&fixture->scratch);
}

static void answered(const struct cubin *cubin,
                     const struct key *key,
                     enum compiler_source source,
                     double seconds,
                     const struct fault *fault,
                     void *context)
{
    struct fixture *fixture = context;
    struct answer *answer = &fixture->answers[fixture->count++];

    cr_assert_eq(cubin != NULL, fault->status == STATUS_OK);
    cr_assert_geq(seconds, 0);
    answer->status = fault->status;
    answer->source = source;
    answer->key = *key;
    answer->size = cubin ? cubin->size : 0;
    strcpy(answer->message, fault->message);
}

static struct config config_number(unsigned number)
{
    struct config configs[CONFIG_LIST_MAX];

    cr_assert_lt(number, config_list(90, configs));
    return configs[number];
}

static void request(struct fixture *fixture, unsigned number)
{
    struct config config = config_number(number);
    unsigned before = fixture->count;

    cr_assert_eq(compiler_request(fixture->compiler, &config, answered, fixture), 0);
    cr_assert_eq(fixture->count, before, "never answered inside the call");
}

static void run_until(struct fixture *fixture, unsigned count)
{
    while (fixture->count < count) {
        bool is_alive = uv_run(&fixture->loop, UV_RUN_ONCE);

        cr_assert(is_alive || fixture->count >= count, "%u of %u answers", fixture->count, count);
    }
}

/* Ends by itself, since nothing that is idle holds a timer or a process. */
static void run_until_idle(struct fixture *fixture)
{
    (void)uv_run(&fixture->loop, UV_RUN_DEFAULT);
}

static struct answer ask(struct fixture *fixture, unsigned number)
{
    unsigned count = fixture->count;

    request(fixture, number);
    run_until(fixture, count + 1);
    return fixture->answers[count];
}

static void count_requests(const struct fixture *fixture)
{
    cr_assert_eq(setenv("GEMMD_TEST_COUNT", scratch_path(&fixture->scratch, "count").text, 1), 0);
}

static unsigned requests_of_children(const struct fixture *fixture)
{
    struct stat status;

    return stat(scratch_path(&fixture->scratch, "count").text, &status) < 0
               ? 0
               : (unsigned)status.st_size;
}

static struct compiler_statistics statistics_of(const struct fixture *fixture)
{
    struct compiler_statistics statistics;

    compiler_statistics(fixture->compiler, &statistics);
    return statistics;
}

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
    cr_assert_eq(ask(&fixture, 0).source, COMPILER_COMPILED);
    cache_flight_end(other, lock);
    cache_free(other);
    tear_down(&fixture);
}

/* --- failures -------------------------------------------------------------------------------- */

static void check_failure(const char *mode, enum status status, const char *says)
{
    struct fixture fixture;
    struct compiler_options options;
    struct answer answer;

    set_mode(mode);
    set_up(&fixture);
    options = options_of(&fixture);
    options.time_limit_seconds = 0.3;
    start_with(&fixture, &options);
    scratch_write_text(&fixture.scratch, "once", "");
    cr_assert_eq(setenv("GEMMD_TEST_ONCE", scratch_path(&fixture.scratch, "once").text, 1), 0);
    answer = ask(&fixture, 0);
    cr_assert_eq(answer.status, status, "%s: %s", mode, answer.message);
    cr_assert_not_null(strstr(answer.message, says), "%s: %s", mode, answer.message);
    cr_assert_eq(ask(&fixture, 0).status, STATUS_OK, "%s: the next request works", mode);
    tear_down(&fixture);
}

Test(compiler, a_child_that_fails_costs_one_answer)
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

Test(compiler, an_answer_counts_although_its_child_exits_after_it)
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

Test(compiler, one_crash_does_not_touch_the_other_requests)
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

Test(compiler, says_why_there_is_no_compiler)
{
    check_no_compiler("missing", "cannot be started: no such file");
    check_no_compiler("die-early", "exited with status 4");
    check_no_compiler("hang-early", "time limit");
    check_no_compiler("other-version", "another version");
    check_no_compiler("no-nvrtc", "NVRTC is not here");
}

Test(compiler, recovers_when_the_program_can_be_started_again)
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

/* --- with NVRTC ------------------------------------------------------------------------------ */

static void start_real(struct fixture *fixture, struct compiler_options *options)
{
    set_mode(NULL);
    set_up(fixture);
    *options = options_of(fixture);
    options->idle_seconds = 5; /* one child for the whole test */
    start_with(fixture, options);
    compiler_warm(fixture->compiler);
    for (unsigned i = 0; i < 3 && !statistics_of(fixture).has_nvrtc; i++)
        (void)uv_run(&fixture->loop, UV_RUN_ONCE);
    if (!statistics_of(fixture).has_nvrtc) {
        tear_down(fixture);
        cr_skip_test("needs NVRTC");
    }
}

Test(compiler, compiles_with_nvrtc_in_its_child)
{
    struct fixture fixture;
    struct compiler_options options;

    start_real(&fixture, &options);
    cr_assert_eq(ask(&fixture, 0).status, STATUS_OK, "%s", fixture.answers[0].message);
    cr_assert_gt(fixture.answers[0].size, 500);
    tear_down(&fixture);
}

Test(compiler, the_log_of_a_failed_compile_reaches_the_asker)
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

Test(compiler, never_stores_a_kernel_under_the_key_of_another)
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

Test(compiler, a_moved_installation_compiles_nothing)
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
Test(compiler, the_memory_limit_ends_a_compile_and_not_the_daemon)
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

Test(compiler, memory_of_a_child_stays_flat, .timeout = 100)
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
