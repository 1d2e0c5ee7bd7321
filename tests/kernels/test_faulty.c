/*
 * The kernel files with faults in them (tests/support/faults.h) compile, and the faults are there:
 * a test that injects nothing would pass on every GPU.
 */
#include "../../daemon/jit/nvrtc.h"
#include "../support/faults.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct nvrtc *compiler;
static char directory[64] = "/tmp/gemmd-faulty-XXXXXX";

static void start(void)
{
    struct fault fault = FAULT_NONE;

    if (nvrtc_new(&compiler, &fault))
        cr_skip_test("%s", fault.message);
    cr_assert_not_null(mkdtemp(directory));
    cr_assert(faulty_kernels_write(directory), "the kernel files are not what faults.c looks for");
}

static void stop(void)
{
    char command[96];

    nvrtc_free(compiler);
    (void)snprintf(command, sizeof(command), "rm -rf '%s'", directory);
    (void)!system(command);
}

TestSuite(faulty, .init = start, .fini = stop);

static void compile(const char *from, const struct config *config, struct nvrtc_result *result)
{
    struct sources sources = SOURCES_NULL;

    cr_assert_eq(sources_open(&sources, from), 0);
    cr_expect_eq(nvrtc_compile(compiler, &sources, config, result), 0, "%s", result->log);
    sources_deinit(&sources);
}

static void expect_difference(enum config_family family)
{
    cleanup(nvrtc_result_deinit) struct nvrtc_result right = {.cubin = CUBIN_NULL},
                                                     faulty = {.cubin = CUBIN_NULL};
    static struct config list[CONFIG_LIST_MAX];
    size_t count = config_list(90, list), i = 0;

    while (i < count && list[i].family != family)
        i++;
    cr_assert_lt(i, count);
    compile(NULL, &list[i], &right);
    compile(directory, &list[i], &faulty);
    /* Four faults take some code; their size may be lost in what aligns sections. */
    cr_expect(faulty.cubin.size != right.cubin.size ||
              memcmp(faulty.cubin.bytes, right.cubin.bytes, right.cubin.size) != 0);
}

Test(faulty, portable_kernels_fault)
{
    expect_difference(CONFIG_PORTABLE);
}

Test(faulty, hopper_kernels_fault)
{
    expect_difference(CONFIG_HOPPER);
}
