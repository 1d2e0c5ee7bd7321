#include "../../daemon/core/error.h"
#include "../../daemon/core/log.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

static int reader = -1;
static char text[1 << 20];

/* stderr becomes a pipe: not a terminal, as under a service manager. */
static void catch_stderr(void)
{
    int ends[2];

    cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
    cr_assert_gt(fcntl(ends[1], F_SETPIPE_SZ, sizeof(text)), 0);
    cr_assert_geq(dup2(ends[1], STDERR_FILENO), 0);
    cr_assert_eq(close(ends[1]), 0);
    cr_assert_eq(fcntl(ends[0], F_SETFL, O_NONBLOCK), 0);
    reader = ends[0];
    log_init("test", LOG_LEVEL_INFO);
}

TestSuite(log, .init = catch_stderr);

static const char *caught(void)
{
    ssize_t n = read(reader, text, sizeof(text) - 1);

    text[MAX(n, 0)] = '\0';
    return text;
}

Test(log, writes_one_line_with_level_and_role)
{
    log_warning("disk=%s used=%d", "full", 100);
    cr_assert_str_eq(caught(), "<4>test: disk=full used=100\n");
}

Test(log, leaves_out_what_is_below_the_level)
{
    log_debug("hidden");
    cr_assert_str_eq(caught(), "");
    log_init("test", LOG_LEVEL_DEBUG);
    log_debug("shown");
    cr_assert_str_eq(caught(), "<7>test: shown\n");
    cr_assert_eq(log_level(), LOG_LEVEL_DEBUG);
}

Test(log, a_library_does_not_silence_its_program)
{
    log_silence();
    log_warning("shown");
    cr_assert_str_eq(caught(), "<4>test: shown\n");
}

Test(log, cuts_long_lines_and_says_so)
{
    char body[LOG_LINE_MAX * 2];

    for (size_t length = LOG_LINE_MAX - 20; length < LOG_LINE_MAX + 20; length++) {
        const char *line;

        memset(body, 'x', length);
        body[length] = '\0';
        log_info("%s", body);
        line = caught();
        cr_assert_leq(strlen(line), LOG_LINE_MAX);
        cr_assert_eq(line[strlen(line) - 1], '\n');
        cr_assert_eq(strchr(line, '\n'), line + strlen(line) - 1);
        if (strlen(line) < length)
            cr_assert_str_eq(line + strlen(line) - 4, "...\n");
    }
}

Test(log, knows_the_names_of_levels)
{
    enum log_level level = LOG_LEVEL_INFO;

    cr_assert(log_level_from_text("debug", &level));
    cr_assert_eq(level, LOG_LEVEL_DEBUG);
    cr_assert_not(log_level_from_text("DEBUG", &level));
    cr_assert_not(log_level_from_text("", &level));
    cr_assert_eq(level, LOG_LEVEL_DEBUG);
}

static void *write_lines(void *letter)
{
    char body[400];

    memset(body, *(const char *)letter, sizeof(body) - 1);
    body[sizeof(body) - 1] = '\0';
    for (int i = 0; i < 200; i++)
        log_info("%s", body);
    return NULL;
}

Test(log, keeps_the_lines_of_threads_apart)
{
    char letters[] = "abcd";
    pthread_t threads[4];
    int lines = 0;

    for (int i = 0; i < 4; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, write_lines, &letters[i]), 0);
    for (int i = 0; i < 4; i++)
        cr_assert_eq(pthread_join(threads[i], NULL), 0);
    for (char *line = strtok((char *)caught(), "\n"); line; line = strtok(NULL, "\n"), lines++) {
        cr_assert_eq(strlen(line), strlen("<6>test: ") + 399, "%s", line);
        cr_assert_eq(strspn(line + 9, (char[]){line[9], '\0'}), 399);
    }
    cr_assert_eq(lines, 800);
}

Test(log, notes_unexpected_errors_and_no_outcomes)
{
    cr_assert_eq(error_origin(0), 0);
    cr_assert_eq(error_trace(3), 3);
    cr_assert_str_eq(caught(), "");
    cr_assert_eq(error_origin(-ENOENT), -ENOENT);
    cr_assert(strstr(caught(), "<3>test: error=No such file or directory step=origin"), "%s", text);
    cr_assert_eq(error_fold(3), -ENOTRECOVERABLE);
    cr_assert(strstr(caught(), "step=fold"), "%s", text);
}

Test(log, has_a_name_for_each_level_that_names_it_back)
{
    static const char *const names[] = {"error", "warning", "info", "debug"};
    enum log_level level;

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        cr_assert(log_level_from_text(names[i], &level));
        cr_assert_str_eq(log_level_name(level), names[i]);
    }
    cr_assert_not(log_level_from_text("verbose", &level));
}
