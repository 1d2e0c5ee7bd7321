#include "../../daemon/front/options.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct options options;
static char message[OPTIONS_MESSAGE_MAX];

static int parse(const char *one, const char *two)
{
    char *argv[] = {(char *)"gemmd", (char *)one, (char *)two, NULL};

    return options_parse(&options, one ? two ? 3 : 2 : 1, argv, message);
}

static void clear(void)
{
    static const char *const names[] = {"GEMMD_SOCKET", "GEMMD_DEVICE", "GEMMD_MODE", "GEMMD_CACHE",
                                        "GEMMD_LOG_LEVEL"};

    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        (void)unsetenv(names[i]);
    (void)setenv("GEMMD_CONFIG", "/dev/null", 1); /* not this machine's */
}

static void forget(void)
{
    options_deinit(&options);
}

TestSuite(options, .init = clear, .fini = forget);

Test(options, default_is_a_private_socket_and_any_device)
{
    cr_assert_eq(parse(NULL, NULL), 0);
    cr_expect_str_eq(options.device, "auto");
    cr_expect_eq(options.mode, 0600);
    cr_expect_eq(options.ready_fd, -1);
    cr_expect_null(options.cache);
    cr_expect_not_null(options.socket);
}

Test(options, flag_wins_over_environment_over_default)
{
    (void)setenv("GEMMD_DEVICE", "cpu", 1);
    cr_assert_eq(parse(NULL, NULL), 0);
    cr_expect_str_eq(options.device, "cpu");
    cr_assert_eq(parse("--device", "cuda:3"), 0);
    cr_expect_str_eq(options.device, "cuda:3");
}

Test(options, an_empty_environment_variable_is_not_set)
{
    (void)setenv("GEMMD_DEVICE", "", 1);
    cr_assert_eq(parse(NULL, NULL), 0);
    cr_expect_str_eq(options.device, "auto");
}

Test(options, takes_values_after_a_space_or_an_equals_sign)
{
    cr_assert_eq(parse("--mode", "0666"), 0);
    cr_expect_eq(options.mode, 0666);
    cr_assert_eq(parse("--mode=0640", NULL), 0);
    cr_expect_eq(options.mode, 0640);
}

Test(options, reads_sizes_with_units)
{
    cr_assert_eq(parse("--cache-size", "3M"), 0);
    cr_expect_eq(options.cache_bytes, 3u << 20);
    cr_assert_eq(parse("--cache-size", "123"), 0);
    cr_expect_eq(options.cache_bytes, 123);
    cr_assert_eq(parse("--compile-memory-limit", "1G"), 0);
    cr_expect_eq(options.compile_bytes, 1u << 30);
}

Test(options, refuses_what_is_out_of_range_and_names_it)
{
    static const char *const wrong[][2] = {
        {"--mode", "1000"},
        {"--mode", "rw"},
        {"--mode", "-1"},
        {"--device", "gpu"},
        {"--device", "cuda:"},
        {"--device", "cuda:x"},
        {"--cache-size", "1X"},
        {"--cache-size", ""},
        {"--cache-size", "99999999999T"},
        {"--log-level", "loud"},
        {"--compilers", "0"},
        {"--compile-time-limit", "0"},
        {"--compile-time-limit", "nan"},
        {"--job-time-limit", "-1"},
        {"--weights", "1000"},
        {"--weights", "1000=0"},
        {"--weights", "1000=1001"},
        {"--weights", "=1"},
        {"--weights", "4294967295=1"},
        {"--weights", "1=1,,2=2"},
        {"--weights", "joe=2"},
        {"--job-time-limit", "1s"},
        {"--ready-fd", "900"},
        {"--compile-memory-limit", "1"},
        {"--scratch-size", "15M"},
        {"--scratch-size", "much"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        cr_expect_eq(parse(wrong[i][0], wrong[i][1]), OPTIONS_E_USAGE, "%s %s", wrong[i][0],
                     wrong[i][1]);
        cr_expect_not_null(strstr(message, wrong[i][0]), "%s", message);
        cr_expect_not_null(strstr(message, "allowed"), "%s", message);
    }
}

Test(options, reads_weights_of_uids)
{
    cr_assert_eq(parse("--weights", "1000=4,0=1000"), 0, "%s", message);
    cr_expect_eq(options.weight_count, 2);
    cr_expect(options.weights[0].uid == 1000 && options.weights[0].weight == 4);
    cr_expect(options.weights[1].uid == 0 && options.weights[1].weight == 1000);
}

Test(options, takes_as_many_weights_as_the_limit_says)
{
    char text[2048] = "";

    for (size_t i = 0; i < QUOTA_UIDS_MAX; i++)
        (void)snprintf(text + strlen(text), sizeof(text) - strlen(text), "%zu=2,", i);
    cr_expect_eq(parse("--weights", text), 0);
    (void)strcat(text, "1000=2");
    cr_expect_eq(parse("--weights", text), OPTIONS_E_USAGE);
}

Test(options, a_wrong_environment_variable_is_named)
{
    (void)setenv("GEMMD_MODE", "worldwide", 1);
    cr_expect_eq(parse(NULL, NULL), OPTIONS_E_USAGE);
    cr_expect_not_null(strstr(message, "GEMMD_MODE"));
}

Test(options, refuses_a_socket_path_over_107_bytes)
{
    char path[200];

    (void)memset(path, 'x', sizeof(path) - 1);
    path[sizeof(path) - 1] = '\0';
    cr_expect_eq(parse("--socket", path), OPTIONS_E_USAGE);
    cr_expect_not_null(strstr(message, "107"));
}

Test(options, refuses_unknown_options_missing_values_and_stray_words)
{
    cr_expect_eq(parse("--frobnicate", "1"), OPTIONS_E_USAGE);
    cr_expect_eq(parse("--device", NULL), OPTIONS_E_USAGE);
    cr_expect_eq(parse("daemon", NULL), OPTIONS_E_USAGE);
}

Test(options, knows_help_and_version)
{
    cr_expect_eq(parse("--help", NULL), OPTIONS_E_HELP);
    cr_expect_eq(parse("--version", NULL), OPTIONS_E_VERSION);
}
