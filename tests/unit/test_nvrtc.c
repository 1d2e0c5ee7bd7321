/*
 * Needs NVRTC (no GPU, no driver); tests of a compile are skipped without it.
 */
#include "../../daemon/jit/nvrtc.h"
#include "../../daemon/jit/ptxas_log.h"
#include "fake_kernels.h"

#include <criterion/criterion.h>
#include <dlfcn.h>
#include <elf.h>

struct fixture {
    struct scratch scratch;
    struct sources sources;
    struct nvrtc *nvrtc;
    struct config config;
    struct nvrtc_result result;
};

static void fixture_deinit(struct fixture *fixture)
{
    nvrtc_result_deinit(&fixture->result);
    nvrtc_free(fixture->nvrtc);
    sources_deinit(&fixture->sources);
    scratch_remove(&fixture->scratch);
}

static struct fixture fixture_new(const char *body)
{
    struct fixture fixture = {.scratch = scratch_new(), .config = fake_config(90)};
    struct fault fault = FAULT_NONE;

    if (nvrtc_new(&fixture.nvrtc, &fault)) {
        scratch_remove(&fixture.scratch);
        cr_skip_test("%s", fault.message);
    }
    fake_kernels_write(&fixture.scratch, body);
    cr_assert_eq(sources_open(&fixture.sources, fixture.scratch.path), 0);
    return fixture;
}

static int compile(struct fixture *fixture)
{
    return nvrtc_compile(fixture->nvrtc, &fixture->sources, &fixture->config, &fixture->result);
}

/* By its bare name it is then found, whatever folders the system knows. */
Test(nvrtc, brings_the_builtins_that_lie_beside_the_library)
{
    struct nvrtc *nvrtc = NULL;
    struct compiler_identity identity;
    struct fault fault = FAULT_NONE;
    char name[64];
    void *library;

    if (nvrtc_new(&nvrtc, &fault))
        cr_skip_test("%s", fault.message);
    nvrtc_identity(nvrtc, &identity);
    (void)snprintf(name, sizeof(name), "libnvrtc-builtins.so.%u.%u", identity.major,
                   identity.minor);
    library = dlopen(name, RTLD_NOW | RTLD_NOLOAD);
    cr_assert_not_null(library, "%s is not loaded", name);
    cr_assert_eq(dlclose(library), 0);
    nvrtc_free(nvrtc);
}

Test(nvrtc, compiles_for_every_architecture)
{
    static const uint32_t archs[] = {80, 90, 100};

    for (size_t i = 0; i < ARRAY_SIZE(archs); i++) {
        cleanup(fixture_deinit) struct fixture fixture =
            fixture_new("__shared__ float s[64]; s[threadIdx.x] = data[threadIdx.x] + VALUE;"
                        "__syncthreads(); data[threadIdx.x] = s[63 - threadIdx.x];");
        char text[CONFIG_TEXT_MAX];

        fixture.config = fake_config(archs[i]);
        cr_assert_eq(compile(&fixture), 0, "%s", fixture.result.log);
        cr_assert_eq(memcmp(fixture.result.cubin.bytes, ELFMAG, SELFMAG), 0);
        cr_assert_gt(fixture.result.cubin.registers, 0);
        cr_assert_eq(fixture.result.cubin.shared_memory, 256);
        cr_assert_eq(fixture.result.cubin.spill_bytes, 0);
        cr_assert_gt(fixture.result.cubin.compile_seconds, 0);
        config_to_text(&fixture.config, text);
        cr_assert_str_eq(fixture.result.cubin.configuration, text);
    }
}

Test(nvrtc, gives_a_kernel_its_defines)
{
    cleanup(fixture_deinit) struct fixture fixture = fixture_new("data[0] = CANARY;");
    struct key_options options;
    char body[512];

    key_options_init(&options, &fixture.config);
    cr_assert_gt(options.defines.count, 0);
    (void)snprintf(body, sizeof(body), "\n#ifndef %.*s\n#error not defined\n#endif\ndata[0] = 1;",
                   (int)strcspn(options.defines.text[0] + 2, "="), options.defines.text[0] + 2);
    fake_kernels_write(&fixture.scratch, body);
    sources_deinit(&fixture.sources);
    cr_assert_eq(sources_open(&fixture.sources, fixture.scratch.path), 0);
    cr_assert_eq(compile(&fixture), 0, "%s", fixture.result.log);
}

Test(nvrtc, finds_shared_headers_as_c_does)
{
    cleanup(fixture_deinit) struct fixture fixture = fixture_new("data[0] = VALUE;");

    scratch_write_text(&fixture.scratch, "abi/outer.h", "#include \"inner.h\"\n");
    scratch_write_text(&fixture.scratch, "abi/inner.h", "struct inner { int x; };\n");
    fake_kernels_write(&fixture.scratch, "#include \"abi/outer.h\"\ndata[0] = sizeof(inner);");
    sources_deinit(&fixture.sources);
    cr_assert_eq(sources_open(&fixture.sources, fixture.scratch.path), 0);
    cr_assert_eq(compile(&fixture), 0, "%s", fixture.result.log);
}

Test(nvrtc, reports_spills)
{
    cleanup(fixture_deinit) struct fixture fixture =
        fixture_new("float a[200];\n"
                    "for (int i = 0; i < 200; i++) a[i] = data[i * count];\n"
                    "for (int j = 0; j < count; j++)\n"
                    "    for (int i = 0; i < 200; i++) a[i] = a[i] * a[(i + 7) % 200] + data[j];\n"
                    "for (int i = 0; i < 200; i++) data[i] = a[i];\n"
                    "} __global__ void __launch_bounds__(1024, 2) bounded(float *data, int count) {"
                    "float a[200];\n"
                    "for (int i = 0; i < 200; i++) a[i] = data[i * count];\n"
                    "for (int j = 0; j < count; j++)\n"
                    "    for (int i = 0; i < 200; i++) a[i] = a[i] * a[(i + 7) % 200] + data[j];\n"
                    "for (int i = 0; i < 200; i++) data[i] = a[i];\n");

    cr_assert_eq(compile(&fixture), 0, "%s", fixture.result.log);
    cr_assert_gt(fixture.result.cubin.spill_bytes, 0, "%s", fixture.result.log);
}

Test(nvrtc, returns_the_log_of_a_kernel_that_does_not_compile)
{
    cleanup(fixture_deinit) struct fixture fixture = fixture_new("data[0] = missing_name;");

    cr_assert_eq(compile(&fixture), NVRTC_E_COMPILE);
    cr_assert_not_null(strstr(fixture.result.log, "missing_name"), "%s", fixture.result.log);
    cr_assert_not_null(strstr(fixture.result.log, "entry/gemm_portable.cu(4)"), "%s",
                       fixture.result.log);
    cr_assert_null(fixture.result.cubin.bytes);
}

Test(nvrtc, says_which_kernel_file_is_missing)
{
    cleanup(fixture_deinit) struct fixture fixture = fixture_new("");

    cr_assert_eq(unlink(scratch_path(&fixture.scratch, "entry/gemm_portable.cu").text), 0);
    sources_deinit(&fixture.sources);
    cr_assert_eq(sources_open(&fixture.sources, fixture.scratch.path), 0);
    cr_assert_eq(compile(&fixture), NVRTC_E_COMPILE);
    cr_assert_not_null(strstr(fixture.result.log, "entry/gemm_portable.cu"));
}

Test(nvrtc, goes_on_after_a_failure)
{
    cleanup(fixture_deinit) struct fixture fixture = fixture_new("data[0] = missing_name;");

    cr_assert_eq(compile(&fixture), NVRTC_E_COMPILE);
    nvrtc_result_deinit(&fixture.result);
    fake_kernels_write(&fixture.scratch, "data[0] = VALUE;");
    sources_deinit(&fixture.sources);
    cr_assert_eq(sources_open(&fixture.sources, fixture.scratch.path), 0);
    cr_assert_eq(compile(&fixture), 0, "%s", fixture.result.log);
}

Test(nvrtc, identity_names_version_and_build)
{
    cleanup(fixture_deinit) struct fixture fixture = fixture_new("");
    struct compiler_identity identity;

    nvrtc_identity(fixture.nvrtc, &identity);
    cr_assert_geq(identity.major, 12);
    cr_assert(strncmp(identity.build, "id-", 3) == 0 || strncmp(identity.build, "code-", 5) == 0,
              "%s", identity.build);
}

Test(nvrtc, absence_is_said_with_its_reason)
{
    struct nvrtc *nvrtc = NULL;
    struct fault fault = FAULT_NONE;

    cr_assert_eq(setenv("GEMMD_NVRTC", "/nonexistent/libnvrtc.so", 1), 0);
    cr_assert_eq(nvrtc_new(&nvrtc, &fault), NVRTC_E_ABSENT);
    cr_assert_null(nvrtc);
    cr_assert_not_null(strstr(fault.message, "/nonexistent/libnvrtc.so"), "%s", fault.message);
}

Test(nvrtc, a_library_that_is_not_nvrtc_is_refused)
{
    struct nvrtc *nvrtc = NULL;
    struct fault fault = FAULT_NONE;

    cr_assert_eq(setenv("GEMMD_NVRTC", "libm.so.6", 1), 0);
    cr_assert_eq(nvrtc_new(&nvrtc, &fault), NVRTC_E_ABSENT);
    cr_assert_not_null(strstr(fault.message, "a function is missing"), "%s", fault.message);
}

Test(ptxas_log, reads_usage_spills_and_advisories)
{
    struct ptxas_usage usage;

    ptxas_log_read("ptxas info    : Function properties for k\n"
                   "ptxas         .     872 bytes stack frame, 2044 bytes spill stores, 2068 bytes "
                   "spill loads\n"
                   "ptxas info    : Used 32 registers, used 1 barriers, 872 bytes cumulative stack "
                   "size, 1024 bytes smem\n"
                   "ptxas info    : Used 40 registers, used 1 barriers, 99 bytes smem",
                   &usage);
    cr_assert_eq(usage.registers, 40);
    cr_assert_eq(usage.shared_memory, 1024);
    cr_assert_eq(usage.spill_bytes, 2044 + 2068);
    cr_assert(!usage.has_advisory);

    ptxas_log_read("ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async "
                   "instructions are serialized due to...\n",
                   &usage);
    cr_assert(usage.has_advisory);
}

Test(ptxas_log, says_nothing_about_other_text)
{
    static const char *const logs[] = {"", "\n\n", " registers", " bytes smem", "no newline"};
    struct ptxas_usage usage;

    for (size_t i = 0; i < ARRAY_SIZE(logs); i++) {
        ptxas_log_read(logs[i], &usage);
        cr_assert_eq(usage.registers + usage.shared_memory + usage.spill_bytes, 0);
        cr_assert(!usage.has_advisory);
    }
}
