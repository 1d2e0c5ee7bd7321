/*
 * gemmctl against a real daemon: files in, files out, what is printed, exit statuses.
 */
#include "../../client/npy.h"
#include "../support/daemon.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct test_daemon daemon_;
static char output[1 << 16];

static void start(void)
{
    test_daemon_start(&daemon_, NULL);
    cr_assert_eq(chdir(daemon_.directory), 0);
    setenv("GEMMD_SOCKET", daemon_.socket, 1);
}

static void stop(void)
{
    cr_assert_eq(chdir("/"), 0);
    test_daemon_stop(&daemon_);
}

TestSuite(command_line, .init = start, .fini = stop, .timeout = 240);

static int run(const char *arguments)
{
    const char *program = getenv("GEMMD_TEST_GEMMCTL");
    char command[1024];
    size_t n;
    FILE *pipe;
    int status;

    snprintf(command, sizeof(command), "%s %s 2>&1 </dev/null", program ? program : GEMMCTL,
             arguments);
    pipe = popen(command, "r");
    n = fread(output, 1, sizeof(output) - 1, pipe);
    output[n] = '\0';
    status = pclose(pipe);
    cr_assert(WIFEXITED(status), "%s: killed", arguments);
    return WEXITSTATUS(status);
}

static void assert_done(const char *arguments, const char *says)
{
    int status = run(arguments);

    cr_assert_eq(status, 0, "gemmctl %s: exit %d: %s", arguments, status, output);
    cr_assert(strstr(output, says), "gemmctl %s: no '%s' in: %s", arguments, says, output);
}

/* Element (l, i, j) is 3 l + i - 2 j: exact in every type, different for every transposition. */
static double value(int64_t l, int64_t i, int64_t j)
{
    return (double)(3 * l + i - 2 * j);
}

/* A rows x columns array of these values, `batch` of them when not 0. */
static void
put(const char *path, enum dtype dtype, int64_t batch, int64_t rows, int64_t columns, bool fortran)
{
    int64_t shape[] = {batch, rows, columns}, count = MAX(batch, 1);
    struct fault fault;
    struct npy npy;

    cr_assert_eq(npy_new(dtype, batch ? 3 : 2, batch ? shape : shape + 1, &npy, &fault), 0);
    npy.fortran = fortran;
    for (int64_t l = 0; l < count; l++) {
        for (int64_t i = 0; i < rows; i++) {
            for (int64_t j = 0; j < columns; j++)
                dtype_store(
                    dtype, npy.data,
                    (size_t)(fortran ? l + count * (i + rows * j) : (l * rows + i) * columns + j),
                    value(l, i, j));
        }
    }
    cr_assert_eq(npy_write(path, &npy, &fault), 0, "%s", fault.message);
    npy_deinit(&npy);
}

/* D[l] = A[l] @ B[l] (+ C[l]), of those values; `shared_b`: one B for all. */
static void assert_product(
    enum dtype dtype, int64_t batch, int64_t m, int64_t n, int64_t k, bool shared_b, bool c)
{
    struct fault fault;
    struct npy npy;

    cr_assert_eq(npy_read("d.npy", &npy, &fault), 0, "%s", fault.message);
    cr_assert_eq(npy.dtype, dtype);
    cr_assert_eq(npy.ndim, batch ? 3 : 2);
    cr_assert_eq(npy.size, (size_t)(MAX(batch, 1) * m * n) * dtype_size(dtype));
    for (int64_t l = 0; l < MAX(batch, 1); l++) {
        for (int64_t e = 0; e < m * n; e++) {
            double expected = c ? value(l, e / n, e % n) : 0;

            for (int64_t p = 0; p < k; p++)
                expected += value(l, e / n, p) * value(shared_b ? 0 : l, p, e % n);
            cr_assert_eq(dtype_load(dtype, npy.data, (size_t)(l * m * n + e)), expected,
                         "item %ld element %ld", (long)l, (long)e);
        }
    }
    npy_deinit(&npy);
}

Test(command_line, multiplies_files_in_either_order)
{
    for (int orders = 0; orders < 8; orders++) {
        put("a.npy", DTYPE_FP32, 0, 5, 7, orders & 1);
        put("b.npy", DTYPE_FP32, 0, 7, 3, orders & 2);
        put("c.npy", DTYPE_FP32, 0, 5, 3, orders & 4);
        assert_done("gemm a.npy b.npy --c c.npy -o d.npy --verify", "all 15 elements within");
        assert_product(DTYPE_FP32, 0, 5, 3, 7, false, true);
    }
}

Test(command_line, multiplies_every_type)
{
    static const enum dtype types[] = {DTYPE_BF16, DTYPE_FP16, DTYPE_FP32, DTYPE_FP64, DTYPE_INT8};

    for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
        put("a.npy", types[i], 0, 4, 3, false);
        put("b.npy", types[i], 0, 3, 6, false);
        assert_done("gemm a.npy b.npy -o d.npy --verify", dtype_name(types[i]));
        assert_product(dtype_default_output(types[i]), 0, 4, 6, 3, false, false);
    }
}

Test(command_line, rounds_files_to_the_type_that_is_asked_for)
{
    put("a.npy", DTYPE_FP64, 0, 4, 3, true);
    put("b.npy", DTYPE_FP32, 0, 3, 6, false);
    assert_done("gemm a.npy b.npy -o d.npy --dtype bf16 --out-dtype fp32 --verify", "bf16.fp32");
    assert_product(DTYPE_FP32, 0, 4, 6, 3, false, false);
}

Test(command_line, multiplies_batches_and_shares_single_matrices)
{
    put("a.npy", DTYPE_FP32, 3, 4, 5, false);
    put("b.npy", DTYPE_FP32, 3, 5, 2, true);
    assert_done("gemm a.npy b.npy -o d.npy --verify", "(3, 4, 2)");
    assert_product(DTYPE_FP32, 3, 4, 2, 5, false, false);
    put("b.npy", DTYPE_FP32, 0, 5, 2, true);
    assert_done("gemm a.npy b.npy -o d.npy --verify", "(3, 4, 2)");
    assert_product(DTYPE_FP32, 3, 4, 2, 5, true, false);
}

Test(command_line, adds_a_bias_and_activates)
{
    put("a.npy", DTYPE_FP32, 3, 4, 5, false);
    put("b.npy", DTYPE_FP32, 0, 5, 2, false);
    put("bias.npy", DTYPE_FP32, 0, 1, 2, false);
    assert_done("gemm a.npy b.npy -o d.npy --bias bias.npy --activation gelu --verify",
                "all 24 elements within");
    put("bias.npy", DTYPE_FP64, 0, 3, 4, true);
    assert_done("gemm a.npy b.npy -o d.npy --bias bias.npy --bias-per row --activation relu "
                "--verify",
                "all 24 elements within");
    cr_expect_eq(run("gemm a.npy b.npy -o d.npy --bias bias.npy"), 1);
    cr_expect(strstr(output, "one value for each column it is (2,)"), "%s", output);
    cr_expect_eq(run("gemm a.npy b.npy -o d.npy --activation tanh"), 2);
    cr_expect(strstr(output, "gelu_tanh or silu"), "%s", output);
}

Test(command_line, multiplies_empty_matrices)
{
    put("a.npy", DTYPE_FP32, 0, 4, 0, false);
    put("b.npy", DTYPE_FP32, 0, 0, 3, false);
    assert_done("gemm a.npy b.npy -o d.npy --verify", "(4, 3)");
    assert_product(DTYPE_FP32, 0, 4, 3, 0, false, false);
    assert_done("gemm b.npy b.npy --trans-b -o d.npy --verify", "(0, 0)");
}

Test(command_line, finds_the_daemon_right)
{
    assert_done("selftest --quick", "all within the bound");
    cr_assert_not(strchr(output, '!'), "%s", output);
    assert_done("selftest --quick --json", "\"right\": true");
    cr_assert_not(strstr(output, "false"), "%s", output);
}

Test(command_line, asks_for_the_state)
{
    assert_done("status", "ready");
    assert_done("status --json", "\"kind\"");
    assert_done("stats", "products");
    assert_done("explain 512 256 128", "configuration");
    assert_done("explain 512 256 128 --json --dtype fp32 --layout nt", ".nt");
    assert_done("explain 512 256 128 --bias row --activation gelu", "configuration");
    assert_done("cache list", "entries");
    assert_done("cache verify --json", "\"damaged\"");
    assert_done("cache prune --max 0", "removed");
}

Test(command_line, finds_every_option_of_the_daemon_in_its_manual)
{
    const char *program = getenv("GEMMD_TEST_DAEMON");
    static char manual[1 << 16];
    char wanted[64];
    FILE *file = fopen(SOURCE "/client/man/gemmd.8", "r");

    if (!file)
        cr_skip_test("the source tree is not on this machine");
    manual[fread(manual, 1, sizeof(manual) - 1, file)] = '\0';
    fclose(file);
    snprintf(output, sizeof(output), "%s --help", program ? program : GEMMD);
    file = popen(output, "r");
    output[fread(output, 1, sizeof(output) - 1, file)] = '\0';
    cr_assert_eq(pclose(file), 0);
    for (char *option = strstr(output, "--"); option; option = strstr(option + 2, "--")) {
        snprintf(wanted, sizeof(wanted), "Fl Fl %.*s",
                 (int)strspn(option + 2, "abcdefghijklmnopqrstuvwxyz-"), option + 2);
        cr_assert(strstr(manual, wanted), "no '%s' in gemmd.8", wanted);
    }
    for (char *name = strstr(output, "$GEMMD_"); name; name = strstr(name + 1, "$GEMMD_")) {
        snprintf(wanted, sizeof(wanted), "Ev %.*s",
                 (int)strspn(name + 1, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_"), name + 1);
        cr_assert(strstr(manual, wanted), "no '%s' in gemmd.8", wanted);
    }
}

/* Else the socket gets the number of stdout, and the table that is printed. */
Test(command_line, prints_nothing_into_its_socket_when_stdout_is_closed)
{
    const char *program = getenv("GEMMD_TEST_GEMMCTL");
    char command[1024];
    int status;

    snprintf(command, sizeof(command), "%s selftest --quick >&- 2>err",
             program ? program : GEMMCTL);
    status = system(command);
    cr_assert(WIFEXITED(status));
    cr_expect_eq(WEXITSTATUS(status), 1, "a result that nobody gets is a failure, a lost one is 3");
}

Test(command_line, says_when_a_file_has_no_shapes_to_tune)
{
    cr_expect_eq(run("tune ."), 1);
    cr_expect(strstr(output, ".: Is a directory"), "%s", output);
    put("a.npy", DTYPE_FP32, 0, 2, 2, false);
    cr_expect_eq(run("tune a.npy"), 1);
    cr_expect(strstr(output, "a.npy: no line of it is a shape"), "%s", output);
}

Test(command_line, fails_when_the_daemon_refuses)
{
    cr_assert_eq(run("cache prewarm cpu.fp32.fp32.nn"), 1);
    cr_assert(strstr(output, "configuration"), "%s", output);
}
