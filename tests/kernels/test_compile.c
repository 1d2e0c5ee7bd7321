/*
 * The configurations compile with NVRTC, for three architectures and without a GPU: no spill, no
 * C75xx line (ptxas gave up on overlap), and the entry point is in the cubin. A fixed third of each
 * list; all with GEMMD_ALL_CONFIGURATIONS=1. Criterion runs the architectures side by side.
 */
#include "../../daemon/jit/nvrtc.h"
#include "../../daemon/jit/ptxas_log.h"
#include "../bench/ladder_steps.h"

#include <criterion/criterion.h>
#include <elf.h>
#include <stdlib.h>
#include <string.h>

#define STEP 3 /* prime to the four layouts that follow each other in the list: all are met */

struct compiler {
    struct nvrtc *nvrtc;
    struct sources sources;
};

static void compiler_deinit(struct compiler *compiler)
{
    nvrtc_free(compiler->nvrtc);
    sources_deinit(&compiler->sources);
}

static bool table_has_symbol(const uint8_t *elf,
                             const Elf64_Shdr *table,
                             const Elf64_Shdr *names,
                             const char *name)
{
    for (size_t at = 0; at + sizeof(Elf64_Sym) <= table->sh_size; at += sizeof(Elf64_Sym)) {
        Elf64_Sym symbol;

        memcpy(&symbol, elf + table->sh_offset + at, sizeof(symbol));
        if (ELF64_ST_TYPE(symbol.st_info) == STT_FUNC && symbol.st_name < names->sh_size &&
            strcmp((const char *)elf + names->sh_offset + symbol.st_name, name) == 0)
            return true;
    }
    return false;
}

static bool has_entry(const struct cubin *cubin, const char *name)
{
    const uint8_t *elf = cubin->bytes;
    const Elf64_Ehdr *header = (const void *)elf;
    const Elf64_Shdr *sections = (const void *)(elf + header->e_shoff);

    cr_assert_gt(cubin->size, sizeof(*header));
    cr_assert_eq(memcmp(header->e_ident, ELFMAG, SELFMAG), 0);
    for (size_t i = 0; i < header->e_shnum; i++) {
        if (sections[i].sh_type == SHT_SYMTAB &&
            table_has_symbol(elf, &sections[i], &sections[sections[i].sh_link], name))
            return true;
    }
    return false;
}

/* more: options beyond the configuration's, or NULL. */
static void check_configuration(const struct compiler *compiler,
                                const struct config *config,
                                const char *const *more)
{
    cleanup(nvrtc_result_deinit) struct nvrtc_result result = {.cubin = CUBIN_NULL};
    struct config_resources resources;
    struct ptxas_usage usage;
    char text[CONFIG_TEXT_MAX];
    int r = nvrtc_compile_with(compiler->nvrtc, &compiler->sources, config, more, &result);

    config_to_text(config, text);
    cr_expect_eq(r, 0, "%s does not compile:\n%s", text, result.log);
    if (r)
        return;
    ptxas_log_read(result.log, &usage);
    config_resources(config, &resources);
    cr_expect_eq(result.cubin.spill_bytes, 0, "%s spills:\n%s", text, result.log);
    cr_expect(!usage.has_advisory, "%s:\n%s", text, result.log);
    cr_expect_gt(result.cubin.registers, 0, "%s: ptxas said nothing:\n%s", text, result.log);
    cr_expect_leq(result.cubin.registers * resources.threads * resources.ctas_per_multiprocessor,
                  65536, "%s does not have the CTAs that it promises", text);
    cr_expect(has_entry(&result.cubin, config_entry(config)), "%s has no %s", text,
              config_entry(config));
}

static void check_architecture(uint32_t arch)
{
    cleanup(compiler_deinit) struct compiler compiler = {.sources = SOURCES_NULL};
    struct config configs[CONFIG_LIST_MAX];
    size_t count = config_list(arch, configs);
    size_t step = getenv("GEMMD_ALL_CONFIGURATIONS") ? 1 : STEP;
    struct fault fault = FAULT_NONE;

    cr_assert_gt(count, 0);
    cr_assert_eq(sources_open(&compiler.sources, NULL), 0);
    if (nvrtc_new(&compiler.nvrtc, &fault))
        cr_skip_test("%s", fault.message);
    for (size_t i = 0; i < count; i += step)
        check_configuration(&compiler, &configs[i], NULL);
}

/* Stamps that cost a spill, or the overlap of products, would tell of another kernel. */
Test(compile, instrumented_steps_of_the_ladder)
{
    static const char *const stamps[] = {"-DGEMMD_STAMPS=1", NULL};
    cleanup(compiler_deinit) struct compiler compiler = {.sources = SOURCES_NULL};
    struct ladder_step steps[LADDER_STEPS];
    struct fault fault = FAULT_NONE;

    cr_assert(ladder_steps(steps), "the list lacks a step");
    cr_assert_eq(sources_open(&compiler.sources, NULL), 0);
    if (nvrtc_new(&compiler.nvrtc, &fault))
        cr_skip_test("%s", fault.message);
    for (size_t i = 0; i < LADDER_STEPS; i++)
        check_configuration(&compiler, &steps[i].config, stamps);
}

Test(compile, sm_80)
{
    check_architecture(80);
}

Test(compile, sm_90a)
{
    check_architecture(90);
}

Test(compile, sm_100a)
{
    check_architecture(100);
}
