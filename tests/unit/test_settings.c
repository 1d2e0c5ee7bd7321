/*
 * The configuration file: settings_file.c, and what options.c makes of it.
 */
#include "../../daemon/front/options.h"
#include "../../daemon/front/value_text.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct options options;
static char message[OPTIONS_MESSAGE_MAX], path[64];

static void write_file(const char *text)
{
    FILE *file = fopen(path, "w");

    cr_assert_not_null(file);
    (void)fputs(text, file);
    (void)fclose(file);
}

static int parse_with(const char *text, const char *one, const char *two)
{
    char *argv[] = {(char *)"gemmd", (char *)"--config", path, (char *)one, (char *)two, NULL};

    write_file(text);
    return options_parse(&options, one ? two ? 5 : 4 : 3, argv, message);
}

static int parse(const char *text)
{
    return parse_with(text, NULL, NULL);
}

static void start(void)
{
    (void)unsetenv("GEMMD_CONFIG");
    (void)unsetenv("GEMMD_DEVICE");
    (void)snprintf(path, sizeof(path), "/tmp/gemmd-settings-%d", (int)getpid());
}

static void stop(void)
{
    options_deinit(&options);
    (void)unlink(path);
}

TestSuite(settings, .init = start, .fini = stop);

Test(settings, daemon_options_and_uids_come_from_one_file)
{
    cr_assert_eq(parse("# comment\n"
                       "[daemon]\n"
                       "device = cuda:2   ; and why\n"
                       "  cache-size=3M\n"
                       "mode: 0640\n"
                       "\n"
                       "[default]\n"
                       "jobs = 7\n"
                       "[uid 1000]\n"
                       "weight = 4\n"),
                 0, "%s", message);
    cr_expect_str_eq(options.device, "cuda:2");
    cr_expect_eq(options.cache_bytes, 3u << 20);
    cr_expect_eq(options.mode, 0640);
    cr_expect_eq(options.rules.common.policy.limits[QUOTA_JOBS], 7);
    cr_expect_eq(options.rules.uids[0].uid, 1000);
    cr_expect_eq(options.rules.uids[0].policy.weight, 4);
}

Test(settings, every_option_of_the_command_line_may_be_there)
{
    cr_assert_eq(parse("[daemon]\nsocket=/s\ndevice=cpu\ncache=/c\ncache-size=1\nkernels=/k\n"
                       "mode=600\nlog-level=debug\ncompile-time-limit=1\ncompile-memory-limit=1G\n"
                       "job-time-limit=1.5\ncompilers=3\nscratch-size=1G\n"),
                 0, "%s", message);
    cr_expect_str_eq(options.socket, "/s");
    cr_expect_str_eq(options.cache, "/c");
    cr_expect_str_eq(options.kernels, "/k");
    cr_expect_eq(options.log_level, LOG_LEVEL_DEBUG);
    cr_expect_eq(options.compile_seconds, 1);
    cr_expect_eq(options.compile_bytes, 1u << 30);
    cr_expect_eq(options.job_seconds, 1.5);
    cr_expect_eq(options.compilers, 3);
    cr_expect_eq(options.scratch_bytes, 1u << 30);
}

Test(settings, command_line_wins_over_environment_over_file_over_default)
{
    (void)setenv("GEMMD_DEVICE", "cuda:1", 1);
    cr_assert_eq(parse_with("[daemon]\ndevice = cpu\nmode = 0640\n", "--mode", "0666"), 0);
    cr_expect_str_eq(options.device, "cuda:1");
    cr_expect_eq(options.mode, 0666);
    cr_expect_eq(options.compile_seconds, 10);
}

Test(settings, weights_of_the_command_line_win_over_the_files)
{
    cr_assert_eq(
        parse_with("[uid 1]\nweight = 2\njobs = 5\n[uid 2]\nweight = 2\n", "--weights", "1=9,3=8"),
        0, "%s", message);
    cr_expect_eq(options.rules.count, 3);
    cr_expect_eq(options.rules.uids[0].policy.weight, 9);
    cr_expect_eq(options.rules.uids[0].policy.limits[QUOTA_JOBS], 5);
    cr_expect_eq(options.rules.uids[1].policy.weight, 2);
    cr_expect_eq(options.rules.uids[2].policy.weight, 8);
}

Test(settings, what_is_wrong_is_named_with_file_and_line)
{
    static const struct {
        const char *text;
        int line;
        const char *says;
    } wrong[] = {
        {"[daemon]\n\nmode = rw\n", 3, "octal permission bits"},
        {"[daemon]\ndevise = cpu\n", 2, "did you mean device?"},
        {"[daemon]\nready-fd = 1\n", 2, "has no ready-fd"},
        {"[daemon]\nweights = 1=2\n", 2, "has no weights"},
        {"[daemon]\nconfig = /x\n", 2, "has no config"},
        {"[daemon]\nmode = 600\nmode = 600\n", 3, "twice"},
        {"[deamon]\n", 1, "[deamon] is not a section"},
        {"[uid joe]\n", 1, "[uid joe] is not a section"},
        {"device = cpu\n", 1, "before any section"},
        {"[default]\njobs = x\n", 2, "a number from 0"},
        {"[default]\njbs = 1\n", 2, "did you mean jobs?"},
        {"[daemon]\n\n\nmode\n", 4, "neither [section] nor key = value"},
        {"[daemon\nmode = 600\n", 1, "] is missing"},
        {"[daemon]\nmode =\n", 2, "octal"},
        {"[daemon]\nmode = 600 # no\n", 2, "octal"},
    };

    char place[96];

    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        cr_expect_eq(parse(wrong[i].text), OPTIONS_E_USAGE, "%s", wrong[i].text);
        (void)snprintf(place, sizeof(place), "%s:%d: ", path, wrong[i].line);
        cr_expect_eq(strncmp(message, place, strlen(place)), 0, "\"%s\": %s", wrong[i].text,
                     message);
        cr_expect_not_null(strstr(message, wrong[i].says), "\"%s\": %s", wrong[i].text, message);
        options_deinit(&options);
    }
}

Test(settings, a_line_that_the_reader_would_cut_is_refused)
{
    char text[512] = "[daemon]\ncache = /";

    (void)memset(text + strlen(text), 'x', 300);
    (void)strcat(text, "\n");
    cr_expect_eq(parse(text), OPTIONS_E_USAGE);
    cr_expect_not_null(strstr(message, ":2: the line is too long"), "%s", message);
    cr_expect_not_null(strstr(message, "at most 198 bytes"), "%s", message);
}

Test(settings, an_indented_line_is_a_line)
{
    cr_assert_eq(parse("[daemon]\ndevice = cpu\n    mode = 0640\n"), 0, "%s", message);
    cr_expect_eq(options.mode, 0640);
}

Test(settings, a_named_file_must_be_there_and_be_one)
{
    char *missing[] = {(char *)"gemmd", (char *)"--config=/nonexistent/gemmd.conf", NULL};
    char *directory[] = {(char *)"gemmd", (char *)"--config=/tmp", NULL};

    cr_expect_eq(options_parse(&options, 2, missing, message), OPTIONS_E_USAGE);
    cr_expect_not_null(strstr(message, "/nonexistent/gemmd.conf cannot be read"), "%s", message);
    cr_expect_eq(options_parse(&options, 2, directory, message), OPTIONS_E_USAGE);
    cr_expect_not_null(strstr(message, "Is a directory"), "%s", message);
}

Test(settings, the_default_file_need_not_be_there)
{
    char *argv[] = {(char *)"gemmd", NULL};

    if (access(OPTIONS_CONFIG_DEFAULT, F_OK) == 0)
        cr_skip_test("this machine has one");
    cr_expect_eq(options_parse(&options, 1, argv, message), 0, "%s", message);
    cr_expect_eq(message[0], '\0');
}

Test(settings, reading_again_gives_what_the_file_says_of_uids_now)
{
    struct quota_rules rules = {0};

    cr_assert_eq(parse_with("[uid 1]\njobs = 1\n", "--weights", "2=3"), 0, "%s", message);
    write_file("[daemon]\nmode = 0640\n[uid 1]\njobs = 5\n");
    cr_assert_eq(options_reload(&options, &rules, message), 0, "%s", message);
    cr_expect_eq(rules.count, 2);
    cr_expect_eq(rules.uids[0].policy.limits[QUOTA_JOBS], 5);
    cr_expect_eq(rules.uids[1].policy.weight, 3, "the command line's holds");
    cr_expect_eq(options.mode, 0600, "from the next start");

    write_file("[uid 1]\njobs = 6\njbs = 6\n");
    cr_expect_neq(options_reload(&options, &rules, message), 0);
    cr_expect_not_null(strstr(message, ":3: "), "%s", message);
    cr_expect_eq(rules.uids[0].policy.limits[QUOTA_JOBS], 5, "a wrong file changes nothing");
}

Test(settings, distance_counts_letters)
{
    cr_expect_eq(text_distance("", "abc"), 3);
    cr_expect_eq(text_distance("jobs", "jobs"), 0);
    cr_expect_eq(text_distance("job", "jobs"), 1);
    cr_expect_eq(text_distance("kitten", "sitting"), 3);
    cr_expect_eq(text_distance("a", "0123456789012345678901234567890123456789012345678901234567890"
                                    "1234"),
                 SIZE_MAX);
}

/* --- what is written about it ---------------------------------------------------------------- */

static void read_source(const char *name, size_t size, char *text)
{
    char file[512];
    FILE *source;
    size_t n;

    (void)snprintf(file, sizeof(file), "%s/%s", SOURCE, name);
    source = fopen(file, "r");
    if (!source)
        cr_skip_test("the sources are not here");
    n = fread(text, 1, size - 1, source);
    text[n] = '\0';
    (void)fclose(source);
}

Test(settings, the_manual_and_the_example_name_every_limit)
{
    static char manual[32768], example[8192];
    char wanted[64];

    read_source("client/man/gemmd.conf.5", sizeof(manual), manual);
    read_source("deploy/gemmd.conf", sizeof(example), example);
    for (int i = 0; i < QUOTA_COUNT; i++) {
        const char *key = quota_resource_entry((enum quota_resource)i)->key;

        (void)snprintf(wanted, sizeof(wanted), "\n.It Cm %s\n", key);
        cr_expect_not_null(strstr(manual, wanted), "%s in the manual", key);
        (void)snprintf(wanted, sizeof(wanted), "\n# %s = ", key);
        cr_expect_not_null(strstr(example, wanted), "%s in the example", key);
    }
}

/* Its values are the defaults. */
Test(settings, the_example_can_be_read_with_and_without_its_comment_signs)
{
    static char text[8192];
    struct quota_policy builtin;

    read_source("deploy/gemmd.conf", sizeof(text), text);
    cr_expect_eq(parse(text), 0, "%s", message);
    options_deinit(&options);
    for (char *c = strchr(text, '['); (c = strstr(c, "\n# ")) != NULL; c++) {
        if (c[3] == '[')
            break; /* a uid's */
        if (strcspn(c + 3, "=") < strcspn(c + 3, "\n,"))
            c[1] = c[2] = ' ';
    }
    cr_expect_eq(parse(text), 0, "%s", message);
    quota_policy_init(&builtin);
    for (int i = 0; i < QUOTA_COUNT; i++)
        cr_expect_eq(options.rules.common.policy.limits[i], builtin.limits[i], "%s",
                     quota_resource_entry((enum quota_resource)i)->key);
}
