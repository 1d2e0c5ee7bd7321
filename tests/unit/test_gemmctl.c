/*
 * The program as a user meets it, with no daemon there: usage, exit statuses, and what is refused
 * before anybody is asked. Products are tested end to end.
 */
#include "../../client/gemmctl.h"
#include "../../client/npy.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char directory[] = "/tmp/test_gemmctl.XXXXXX";
static char output[1 << 16];

static void put(const char *name, enum dtype dtype, int ndim, const int64_t *shape)
{
    struct fault fault;
    struct npy npy;

    cr_assert_eq(npy_new(dtype, ndim, shape, &npy, &fault), 0);
    cr_assert_eq(npy_write(name, &npy, &fault), 0, "%s", fault.message);
    npy_deinit(&npy);
}

static void enter_directory(void)
{
    cr_assert(mkdtemp(directory));
    cr_assert_eq(chdir(directory), 0);
    setenv("GEMMD_SOCKET", "absent.sock", 1);
    put("a34.npy", DTYPE_FP32, 2, (int64_t[]){3, 4});
    put("b45.npy", DTYPE_FP32, 2, (int64_t[]){4, 5});
    put("c35.npy", DTYPE_FP32, 2, (int64_t[]){3, 5});
    put("v4.npy", DTYPE_FP32, 1, (int64_t[]){4});
    put("a234.npy", DTYPE_FP32, 3, (int64_t[]){2, 3, 4});
    put("b345.npy", DTYPE_FP32, 3, (int64_t[]){3, 4, 5});
    put("i34.npy", DTYPE_INT8, 2, (int64_t[]){3, 4});
}

static void leave_directory(void)
{
    (void)!system("rm -f ./*");
    cr_assert_eq(chdir("/"), 0);
    (void)rmdir(directory);
}

TestSuite(gemmctl, .init = enter_directory, .fini = leave_directory);

/* Of a bundle, or of the build. */
static const char *program(void)
{
    const char *path = getenv("GEMMD_TEST_GEMMCTL");

    return path ? path : GEMMCTL;
}

/* The exit status of `gemmctl ARGUMENTS`; what it printed is in `output`. */
static int run(const char *arguments)
{
    char command[1024];
    size_t n;
    FILE *pipe;
    int status;

    snprintf(command, sizeof(command), "%s %s 2>&1 </dev/null", program(), arguments);
    pipe = popen(command, "r");
    n = fread(output, 1, sizeof(output) - 1, pipe);
    output[n] = '\0';
    status = pclose(pipe);
    cr_assert(WIFEXITED(status), "%s: killed", arguments);
    return WEXITSTATUS(status);
}

static void assert_exits(const char *arguments, int status, const char *says)
{
    int got = run(arguments);

    cr_assert_eq(got, status, "gemmctl %s: exit %d: %s", arguments, got, output);
    cr_assert(strstr(output, says), "gemmctl %s: no '%s' in: %s", arguments, says, output);
}

Test(gemmctl, names_the_option_that_is_wrong)
{
    static const struct {
        const char *arguments, *says;
    } cases[] = {
        {"--bogus", "'--bogus' is not known"},
        {"-z", "'-z' is not known"},
        {"--socket", "'--socket' needs a value"},
        {"gemm a34.npy b45.npy --bogus", "'--bogus' is not known"},
        {"gemm a34.npy b45.npy -o", "'-o' needs a value"},
        {"gemm a34.npy b45.npy --verify=yes -o d.npy", "'--verify=yes' takes no value"},
        {"gemm a34.npy b45.npy -o d.npy --alpha 1x", "--alpha is '1x'"},
        {"gemm a34.npy b45.npy -o d.npy --beta=", "--beta is ''"},
        {"gemm a34.npy b45.npy -o d.npy --dtype fp8", "--dtype is 'fp8'"},
        {"gemm a34.npy b45.npy -o d.npy --beta 2", "--beta 2 needs --c"},
        {"explain 1 -- -2 3", "N is '-2'"},
        {"explain 1 2 9223372036854775808", "K is '9223372036854775808'"},
        {"explain 1 2 3 --layout n", "--layout is 'n'"},
        {"explain 1 2 3 --batch x", "--batch is 'x'"},
        {"cache prune --max -1", "--max is '-1'"},
        {"cache prune --max 1P", "--max is '1P'"},
        {"cache prewarm --arch 70", "--arch is '70'"},
        {"compile --arch sm_90b --list", "--arch is 'sm_90b'"},
        {"compile --jobs 0 --arch 90 --all", "--jobs is '0'; 1 to 64"},
        {"compile --jobs 65 --arch 90 --all", "--jobs is '65'; 1 to 64"},
        {"selftest --memory gpu", "--memory is 'gpu'"},
        {"status -o x", "'-o' is not known"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        assert_exits(cases[i].arguments, CTL_USAGE, cases[i].says);
}

Test(gemmctl, names_the_argument_that_is_missing_or_too_much)
{
    static const struct {
        const char *arguments, *says;
    } cases[] = {
        {"", "no command"},
        {"bogus", "'bogus' is not a command"},
        {"gemm", "A.npy is missing"},
        {"gemm a34.npy", "B.npy is missing"},
        {"gemm a34.npy b45.npy", "-o D.npy is missing"},
        {"gemm a34.npy b45.npy c35.npy -o d.npy", "unexpected argument 'c35.npy'"},
        {"status now", "unexpected argument 'now'"},
        {"explain 1 2", "K is missing"},
        {"explain 1 2 3 4", "unexpected argument '4'"},
        {"tune", "there is no shape"},
        {"tune 1x2", "'1x2' is neither a shape"},
        {"tune 1x2x3 1x0x3", "'1x0x3' is neither a shape"},
        {"tune 1x2x3 --keep 0", "--keep is '0'"},
        {"tune 1x2x3 --keep 33", "--keep is '33'"},
        {"cache", "one of list, verify"},
        {"cache empty", "'empty' is not list"},
        {"cache prune", "--max SIZE"},
        {"cache prewarm", "--arch ARCH"},
        {"cache prewarm sm90a.nonsense", "'sm90a.nonsense' is not a configuration"},
        {"compile", "configurations are wanted"},
        {"compile --all", "--arch ARCH"},
        {"compile cpu.fp32.fp32.nn", "not a configuration of a kernel"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        assert_exits(cases[i].arguments, CTL_USAGE, cases[i].says);
}

Test(gemmctl, says_when_no_daemon_is_there)
{
    static const char *const commands[] = {
        "status",
        "stats --json",
        "explain 1 2 3",
        "selftest --quick",
        "cache list",
        "cache prune --max 0",
        "--socket absent.sock status",
        "status --socket absent.sock",
        "gemm a34.npy b45.npy -o d.npy",
    };

    for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
        assert_exits(commands[i], CTL_NO_DAEMON, "absent.sock");
    cr_assert_neq(access("d.npy", F_OK), 0); /* nothing left behind */
}

Test(gemmctl, refuses_socket_paths_that_are_too_long)
{
    char arguments[300] = "status --socket ";

    memset(arguments + strlen(arguments), 'x', 108);
    assert_exits(arguments, CTL_USAGE, "107");
}

Test(gemmctl, helps_without_a_daemon)
{
    static const char *const commands[] = {"gemm", "status",   "stats", "explain",
                                           "tune", "selftest", "cache", "compile"};
    char arguments[64];

    assert_exits("--version", CTL_OK, "gemmctl " GEMMD_VERSION);
    assert_exits("--help", CTL_OK, "Exit status: 0 done, 1 failed, 2 wrong usage, 3 no daemon");
    for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
        cr_assert(strstr(output, commands[i]) || i > 0);
        snprintf(arguments, sizeof(arguments), "%s --help", commands[i]);
        assert_exits(arguments, CTL_OK, commands[i]);
    }
}

/* True when every "--option" of the help in `output` stands in the file with `prefix` before its
 * name. */
static void assert_documents(const char *path, const char *prefix, const char *command)
{
    static char text[1 << 16];
    FILE *file = fopen(path, "r");

    cr_assert(file, "%s", path);
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    fclose(file);
    for (char *option = strstr(output, "--"); option; option = strstr(option + 2, "--")) {
        size_t length = strspn(option + 2, "abcdefghijklmnopqrstuvwxyz-");
        char wanted[64];

        snprintf(wanted, sizeof(wanted), "%s%.*s", prefix, (int)length, option + 2);
        cr_assert(strstr(text, wanted), "%s --%.*s: not in %s", command, (int)length, option + 2,
                  path);
    }
}

Test(gemmctl, documents_every_command_and_option)
{
    static const char *const commands[] = {"",      "gemm ",     "status ", "stats ",  "explain ",
                                           "tune ", "selftest ", "cache ",  "compile "};
    char arguments[64];

    if (access(SOURCE, F_OK) != 0)
        cr_skip_test("the source tree is not on this machine");
    for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
        snprintf(arguments, sizeof(arguments), "%s--help", commands[i]);
        cr_assert_eq(run(arguments), CTL_OK);
        assert_documents(SOURCE "/client/man/gemmctl.1", "Fl Fl ", commands[i]);
        assert_documents(SOURCE "/deploy/gemmctl.bash", "--", commands[i]);
    }
}

Test(gemmctl, refuses_matrices_that_do_not_fit)
{
    static const struct {
        const char *arguments, *says;
    } cases[] = {
        {"gemm absent.npy b45.npy -o d.npy", "absent.npy: cannot open: No such file"},
        {"gemm v4.npy b45.npy -o d.npy", "reshape it to (1, 4) or (4, 1)"},
        {"gemm a34.npy a34.npy -o d.npy", "op(A) has 4 columns and op(B) 3 rows"},
        {"gemm a34.npy b45.npy --trans-a -o d.npy", "op(A) has 3 columns and op(B) 4 rows"},
        {"gemm a34.npy b45.npy --c a34.npy -o d.npy", "C is (3, 4); the product is 3 x 5"},
        {"gemm a234.npy b345.npy -o d.npy", "the batches differ: A is (2, 3, 4), B is (3, 4, 5)"},
        {"gemm a34.npy i34.npy --trans-b -o d.npy", "'|i1' cannot be taken as fp32"},
        {"gemm a34.npy b45.npy --out-dtype bf16 -o d.npy", "output type bf16"},
        {"gemm i34.npy i34.npy --trans-b --alpha 0.5 -o d.npy", "alpha is 0.5"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        assert_exits(cases[i].arguments, CTL_FAILED, cases[i].says);
}

Test(gemmctl, lists_configurations_of_every_spelling_of_an_architecture)
{
    static const char *const names[] = {"90", "9.0", "sm_90", "sm_90a"};
    char arguments[64];

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        snprintf(arguments, sizeof(arguments), "compile --list --arch %s", names[i]);
        assert_exits(arguments, CTL_OK, "sm90a.bf16.bf16.nn.");
    }
}

Test(gemmctl, does_not_hide_a_full_disk)
{
    assert_exits("--version >/dev/full", CTL_FAILED, "");
    assert_exits("compile --list --arch 90 >/dev/full", CTL_FAILED, "");
}

/* --- the daemon's answers for people ---------------------------------------------------------- */

static const char *printed(const char *json)
{
    FILE *stream = fmemopen(output, sizeof(output), "w");
    bool is_json = ctl_print_json(stream, json);

    fclose(stream);
    return is_json ? output : NULL;
}

Test(gemmctl, prints_answers_in_aligned_columns)
{
    cr_assert_str_eq(printed("{\"device\": \"cpu\", \"ready\": true, \"used_bytes\": 1536, "
                             "\"wait_ns\": 2500, \"jobs\": {\"done\": 3}, \"none\": []}"),
                     "device  cpu\n"
                     "ready   yes\n"
                     "used    1.5 KiB\n"
                     "wait    2.5 us\n"
                     "jobs\n"
                     "  done  3\n"
                     "none\n"
                     "  (none)\n");
}

Test(gemmctl, prints_arrays_of_maps_as_tables)
{
    cr_assert_str_eq(printed("{\"entries\": [{\"key\": \"ab\", \"bytes\": 10}, "
                             "{\"bytes\": 2097152, \"key\": \"c\"}, {\"key\": \"long one\"}]}"),
                     "entries\n"
                     "  key       bytes\n"
                     "  ab        10 bytes\n"
                     "  c         2 MiB\n"
                     "  long one  \n");
}

Test(gemmctl, refuses_answers_that_are_not_json)
{
    static const char *const texts[] = {
        "",         "{",      "{\"a\"}",      "{\"a\": }",
        "[1, ]",    "[1 2]",  "{\"a\": 1} x", "\"open",
        "\"open\\", "nul",    "{a: 1}",       "[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]",
        "[1",       "{\"a\"", "{\"a\": 1",
    };

    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        cr_assert_null(printed(texts[i]), "%s", texts[i]);
}
