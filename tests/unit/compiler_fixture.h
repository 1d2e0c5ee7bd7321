/*
 * A front with nothing but a compiler, whose children are compile_helper.
 */
#pragma once

#include "../../daemon/core/log.h"
#include "../../daemon/front/compiler.h"
#include "fake_kernels.h"

#include <criterion/criterion.h>
#include <signal.h>

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

static inline void set_mode(const char *mode)
{
    cr_assert_eq(mode ? setenv("GEMMD_TEST_CHILD", mode, 1) : unsetenv("GEMMD_TEST_CHILD"), 0);
}

static inline void write_kernels(const struct fixture *fixture, const char *body)
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

static inline struct compiler_options options_of(struct fixture *fixture)
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

static inline void set_up(struct fixture *fixture)
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

static inline void start_with(struct fixture *fixture, const struct compiler_options *options)
{
    cr_assert_eq(compiler_new(&fixture->compiler, options), 0);
}

static inline void start(struct fixture *fixture)
{
    struct compiler_options options;

    set_up(fixture);
    options = options_of(fixture);
    start_with(fixture, &options);
}

static inline void closed(void *context)
{
    ((struct fixture *)context)->is_closed = true;
}

static inline void stop_compiler(struct fixture *fixture)
{
    compiler_close(fixture->compiler, closed, fixture);
    (void)uv_run(&fixture->loop, UV_RUN_DEFAULT);
    cr_assert(fixture->is_closed);
    fixture->compiler = compiler_free(fixture->compiler);
}

static inline void tear_down(struct fixture *fixture)
{
    if (fixture->compiler)
        stop_compiler(fixture);
    cr_assert_eq(uv_loop_close(&fixture->loop), 0, "no handle may be left");
    fixture->cache = cache_free(fixture->cache);
    scratch_remove(&fixture->scratch);
}

static inline void answered(const struct cubin *cubin,
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

static inline struct config config_number(unsigned number)
{
    struct config configs[CONFIG_LIST_MAX];

    cr_assert_lt(number, config_list(90, configs));
    return configs[number];
}

static inline void request(struct fixture *fixture, unsigned number)
{
    struct config config = config_number(number);
    unsigned before = fixture->count;

    cr_assert_eq(compiler_request(fixture->compiler, &config, answered, fixture), 0);
    cr_assert_eq(fixture->count, before, "never answered inside the call");
}

static inline void run_until(struct fixture *fixture, unsigned count)
{
    while (fixture->count < count) {
        bool is_alive = uv_run(&fixture->loop, UV_RUN_ONCE);

        cr_assert(is_alive || fixture->count >= count, "%u of %u answers", fixture->count, count);
    }
}

/* Ends by itself, since nothing that is idle holds a timer or a process. */
static inline void run_until_idle(struct fixture *fixture)
{
    (void)uv_run(&fixture->loop, UV_RUN_DEFAULT);
}

static inline struct answer ask(struct fixture *fixture, unsigned number)
{
    unsigned count = fixture->count;

    request(fixture, number);
    run_until(fixture, count + 1);
    return fixture->answers[count];
}

/* Where the time limit is so short that a busy machine exceeds it: until one was in time. */
static inline struct answer ask_until_in_time(struct fixture *fixture, unsigned number)
{
    struct answer answer = ask(fixture, number);

    for (int i = 0; i < ANSWERS_MAX / 2 && answer.status == STATUS_COMPILE_TIMEOUT; i++)
        answer = ask(fixture, number);
    return answer;
}

static inline void count_requests(const struct fixture *fixture)
{
    cr_assert_eq(setenv("GEMMD_TEST_COUNT", scratch_path(&fixture->scratch, "count").text, 1), 0);
}

static inline unsigned requests_of_children(const struct fixture *fixture)
{
    struct stat status;

    return stat(scratch_path(&fixture->scratch, "count").text, &status) < 0
               ? 0
               : (unsigned)status.st_size;
}

static inline struct compiler_statistics statistics_of(const struct fixture *fixture)
{
    struct compiler_statistics statistics;

    compiler_statistics(fixture->compiler, &statistics);
    return statistics;
}
