/*
 * Configurations: the table of tiles this version knows, and the three forms of a configuration.
 *
 * A configuration is valid when its tile stands in the table for its input type and copy variant;
 * what the text does not carry (warp grid, CTAs per multiprocessor) follows from that row. Shared
 * memory of every row fits the smallest opt-in maximum of the known architectures, 99 KiB (8.6,
 * 8.9, 12.0), and rows that promise two CTAs fit twice into the 100 KiB of such a multiprocessor
 * (1 KiB of each CTA is the system's).
 */
#include "config.h"

#include <stdio.h>
#include <string.h>

struct arch {
    uint32_t number;
    const char *compiler; /* what -arch wants; 'a' where such a target exists: it has the most */
    const char *text;
};

static const struct arch archs[] = {
    {80, "sm_80", "sm80"},      {86, "sm_86", "sm86"},      {87, "sm_87", "sm87"},
    {89, "sm_89", "sm89"},      {90, "sm_90a", "sm90a"},    {100, "sm_100a", "sm100a"},
    {103, "sm_103a", "sm103a"}, {120, "sm_120a", "sm120a"},
};

struct tile {
    enum dtype input;
    enum config_copy copy;
    uint32_t m, n, k, stages;
    uint32_t warps_m, warps_n;
    uint32_t ctas_per_multiprocessor;
};

/* The large tile of each pair first: config_list() keeps this order. ELEMENT rings have two slots
 * because their loads wait in registers, not in the ring. */
static const struct tile tiles[] = {
    {DTYPE_BF16, CONFIG_COPY_V16, 128, 256, 32, 4, 2, 4, 1},
    {DTYPE_BF16, CONFIG_COPY_V16, 64, 64, 64, 3, 2, 2, 2},
    {DTYPE_BF16, CONFIG_COPY_ELEMENT, 128, 128, 32, 2, 2, 4, 1},
    {DTYPE_BF16, CONFIG_COPY_ELEMENT, 64, 64, 32, 2, 2, 2, 2},
    {DTYPE_FP16, CONFIG_COPY_V16, 128, 256, 32, 4, 2, 4, 1},
    {DTYPE_FP16, CONFIG_COPY_V16, 64, 64, 64, 3, 2, 2, 2},
    {DTYPE_FP16, CONFIG_COPY_ELEMENT, 128, 128, 32, 2, 2, 4, 1},
    {DTYPE_FP16, CONFIG_COPY_ELEMENT, 64, 64, 32, 2, 2, 2, 2},
    {DTYPE_FP32, CONFIG_COPY_V16, 128, 128, 16, 3, 4, 2, 1},
    {DTYPE_FP32, CONFIG_COPY_V16, 64, 64, 32, 3, 2, 2, 2},
    {DTYPE_FP32, CONFIG_COPY_ELEMENT, 128, 128, 16, 2, 4, 2, 1},
    {DTYPE_FP32, CONFIG_COPY_ELEMENT, 64, 64, 16, 2, 2, 2, 2},
    {DTYPE_FP64, CONFIG_COPY_V16, 128, 128, 16, 3, 2, 4, 1},
    {DTYPE_FP64, CONFIG_COPY_V16, 64, 64, 16, 3, 2, 2, 2},
    {DTYPE_FP64, CONFIG_COPY_ELEMENT, 128, 64, 16, 2, 2, 2, 1},
    {DTYPE_FP64, CONFIG_COPY_ELEMENT, 64, 64, 16, 2, 2, 2, 2},
    {DTYPE_INT8, CONFIG_COPY_V16, 128, 128, 64, 4, 2, 4, 1},
    {DTYPE_INT8, CONFIG_COPY_V16, 64, 64, 128, 3, 2, 2, 2},
    {DTYPE_INT8, CONFIG_COPY_ELEMENT, 128, 128, 64, 2, 2, 4, 1},
    {DTYPE_INT8, CONFIG_COPY_ELEMENT, 64, 64, 64, 2, 2, 2, 2},
};

static const struct {
    enum dtype input, output;
} pairs[] = {
    {DTYPE_BF16, DTYPE_BF16},  {DTYPE_BF16, DTYPE_FP32}, {DTYPE_FP16, DTYPE_FP16},
    {DTYPE_FP16, DTYPE_FP32},  {DTYPE_FP32, DTYPE_FP32}, {DTYPE_FP64, DTYPE_FP64},
    {DTYPE_INT8, DTYPE_INT32},
};

/* Names of this file's own, in the order of enum dtype: the text is a cache key and a wire format,
 * it must not follow a change elsewhere. */
static const char *const dtype_texts[DTYPE_COUNT] = {
    "none", "bf16", "fp16", "fp32", "fp64", "int8", "int32",
};

static const char *const schedule_texts[] = {
    [CONFIG_SCHEDULE_MMA] = "mma",
    [CONFIG_SCHEDULE_SIMT] = "simt",
};

static const char *const copy_texts[] = {
    [CONFIG_COPY_V16] = "v16",
    [CONFIG_COPY_ELEMENT] = "element",
};

static const struct arch *arch_find(uint32_t number)
{
    for (size_t i = 0; i < ARRAY_SIZE(archs); i++)
        if (archs[i].number == number)
            return &archs[i];
    return NULL;
}

static bool tile_matches(const struct tile *tile, const struct config *config)
{
    return tile->input == config->input && tile->copy == config->copy &&
           tile->m == config->tile_m && tile->n == config->tile_n && tile->k == config->tile_k &&
           tile->stages == config->stages;
}

static const struct tile *tile_find(const struct config *config)
{
    for (size_t i = 0; i < ARRAY_SIZE(tiles); i++)
        if (tile_matches(&tiles[i], config))
            return &tiles[i];
    return NULL;
}

/* Bytes of an element; dtype_size() for the types a configuration can have. */
static uint32_t element_size(enum dtype dtype)
{
    switch (dtype) {
    case DTYPE_BF16:
    case DTYPE_FP16:
        return 2;
    case DTYPE_FP64:
        return 8;
    case DTYPE_INT8:
        return 1;
    default:
        return 4;
    }
}

static struct config config_of_tile(uint32_t arch, const struct tile *tile, enum dtype output)
{
    return (struct config){
        .family = CONFIG_PORTABLE,
        .arch = arch,
        .input = tile->input,
        .output = output,
        .tile_m = tile->m,
        .tile_n = tile->n,
        .tile_k = tile->k,
        .stages = tile->stages,
        .cluster_m = 1,
        .cluster_n = 1,
        .schedule = tile->input == DTYPE_FP32 ? CONFIG_SCHEDULE_SIMT : CONFIG_SCHEDULE_MMA,
        .copy = tile->copy,
    };
}

void config_to_text(const struct config *config, char ret_text[CONFIG_TEXT_MAX])
{
    const struct arch *arch = arch_find(config->arch);
    const char *input = dtype_texts[config->input], *output = dtype_texts[config->output];
    char a = config->trans_a ? 't' : 'n', b = config->trans_b ? 't' : 'n';

    if (config->family == CONFIG_CPU) {
        snprintf(ret_text, CONFIG_TEXT_MAX, "cpu.%s.%s.%c%c", input, output, a, b);
        return;
    }
    assert(arch);
    snprintf(ret_text, CONFIG_TEXT_MAX, "%s.%s.%s.%c%c.%ux%ux%u.s%u.c%ux%u.%s.%s", arch->text,
             input, output, a, b, config->tile_m, config->tile_n, config->tile_k, config->stages,
             config->cluster_m, config->cluster_n, schedule_texts[config->schedule],
             copy_texts[config->copy]);
}

/* The canonical text is its own grammar: a text is one exactly when some known configuration
 * prints as it. A few hundred short prints, and no parser that could accept more than it writes. */
static bool cpu_from_text(const char *text, struct config *ret_config)
{
    char candidate[CONFIG_TEXT_MAX];

    for (size_t i = 0; i < ARRAY_SIZE(pairs) * 4; i++) {
        struct config config = {
            .family = CONFIG_CPU,
            .input = pairs[i / 4].input,
            .output = pairs[i / 4].output,
            .trans_a = i & 2,
            .trans_b = i & 1,
        };

        config_to_text(&config, candidate);
        if (strcmp(candidate, text) == 0) {
            *ret_config = config;
            return true;
        }
    }
    return false;
}

static bool listed_from_text(const struct arch *arch, const char *text, struct config *ret_config)
{
    struct config configs[CONFIG_LIST_MAX];
    char candidate[CONFIG_TEXT_MAX];
    size_t count = config_list(arch->number, configs);

    for (size_t i = 0; i < count; i++) {
        config_to_text(&configs[i], candidate);
        if (strcmp(candidate, text) == 0) {
            *ret_config = configs[i];
            return true;
        }
    }
    return false;
}

bool config_from_text(const char *text, struct config *ret_config)
{
    const char *dot = strchr(text, '.');
    size_t length;

    if (!dot)
        return false;
    length = (size_t)(dot - text);
    if (length == 3 && memcmp(text, "cpu", 3) == 0)
        return cpu_from_text(text, ret_config);
    for (size_t i = 0; i < ARRAY_SIZE(archs); i++)
        if (strlen(archs[i].text) == length && memcmp(archs[i].text, text, length) == 0)
            return listed_from_text(&archs[i], text, ret_config);
    return false;
}

static void define_add(struct config_defines *defines, const char *name, uint32_t value)
{
    assert(defines->count < CONFIG_DEFINES_MAX);
    snprintf(defines->text[defines->count++], CONFIG_DEFINE_MAX, "-DGEMMD_%s=%u", name, value);
}

void config_to_defines(const struct config *config, struct config_defines *ret_defines)
{
    const struct tile *tile = tile_find(config);
    struct config_resources resources;

    *ret_defines = (struct config_defines){0};
    if (config->family == CONFIG_CPU)
        return;
    assert(tile);
    config_resources(config, &resources);
    define_add(ret_defines, "INPUT", config->input);
    define_add(ret_defines, "OUTPUT", config->output);
    define_add(ret_defines, "TRANS_A", config->trans_a);
    define_add(ret_defines, "TRANS_B", config->trans_b);
    define_add(ret_defines, "TILE_M", config->tile_m);
    define_add(ret_defines, "TILE_N", config->tile_n);
    define_add(ret_defines, "TILE_K", config->tile_k);
    define_add(ret_defines, "STAGES", config->stages);
    define_add(ret_defines, "CLUSTER_M", config->cluster_m);
    define_add(ret_defines, "CLUSTER_N", config->cluster_n);
    define_add(ret_defines, "SCHEDULE", config->schedule);
    define_add(ret_defines, "COPY", config->copy);
    define_add(ret_defines, "WARPS_M", tile->warps_m);
    define_add(ret_defines, "WARPS_N", tile->warps_n);
    define_add(ret_defines, "SHARED_MEMORY", resources.shared_memory);
    define_add(ret_defines, "CTAS_PER_MULTIPROCESSOR", resources.ctas_per_multiprocessor);
}

/* The epilogue reuses the ring: each warp takes a slab of 16 accumulator rows of its warp tile, a
 * row padded by 32 bytes (kernels_src/tile/smem_map.cuh, which asserts the same number). */
static uint32_t slab_bytes(const struct tile *tile)
{
    uint32_t accumulator = tile->input == DTYPE_FP64 ? 8 : 4;
    uint32_t row = tile->n / tile->warps_n * accumulator + 32;

    return tile->warps_m * tile->warps_n * 16 * row;
}

void config_resources(const struct config *config, struct config_resources *ret_resources)
{
    const struct tile *tile = tile_find(config);
    uint32_t ring;

    *ret_resources = (struct config_resources){0};
    if (config->family == CONFIG_CPU)
        return;
    assert(tile);
    ring = tile->stages * (tile->m + tile->n) * tile->k * element_size(tile->input);
    ret_resources->threads = tile->warps_m * tile->warps_n * 32;
    ret_resources->shared_memory = MAX(ring, slab_bytes(tile));
    ret_resources->ctas_per_multiprocessor = tile->ctas_per_multiprocessor;
}

bool config_equal(const struct config *a, const struct config *b)
{
    return a->family == b->family && a->arch == b->arch && a->input == b->input &&
           a->output == b->output && a->trans_a == b->trans_a && a->trans_b == b->trans_b &&
           a->tile_m == b->tile_m && a->tile_n == b->tile_n && a->tile_k == b->tile_k &&
           a->stages == b->stages && a->cluster_m == b->cluster_m && a->cluster_n == b->cluster_n &&
           a->schedule == b->schedule && a->copy == b->copy;
}

const char *config_source(const struct config *config)
{
    return config->family == CONFIG_PORTABLE ? "entry/gemm_portable.cu" : NULL;
}

const char *config_entry(const struct config *config)
{
    return config->family == CONFIG_PORTABLE ? "gemm" : NULL;
}

/* At level 3 ptxas searches for schedules for as long as the rest of a portable kernel's compile
 * takes. Measured on an H200 at 4096^3 that is worth 4 % for some configurations and costs others
 * as much. */
unsigned config_optimization(const struct config *config)
{
    return config->family == CONFIG_PORTABLE ? 2 : 3;
}

const char *config_architecture(uint32_t arch)
{
    const struct arch *found = arch_find(arch);

    return found ? found->compiler : NULL;
}

/*
 * Within major 8 a cubin runs on every later minor, but for 8.7: that line is for integrated
 * devices and runs only there. From 9.0 on the known targets are the 'a' ones, which run on
 * exactly the device they name.
 */
uint32_t config_arch_for_device(uint32_t compute_major, uint32_t compute_minor)
{
    uint32_t device = compute_major * 10 + compute_minor;

    if (compute_minor > 9)
        return 0;
    if (compute_major != 8)
        return arch_find(device) ? device : 0;
    if (compute_minor == 7 || compute_minor == 9)
        return device;
    return compute_minor >= 6 ? 86 : 80;
}

static size_t list_layouts(struct config base, struct config *ret_configs)
{
    for (size_t i = 0; i < 4; i++) {
        ret_configs[i] = base;
        ret_configs[i].trans_a = i & 2;
        ret_configs[i].trans_b = i & 1;
    }
    return 4;
}

size_t config_list(uint32_t arch, struct config ret_configs[CONFIG_LIST_MAX])
{
    size_t count = 0;

    if (!arch_find(arch))
        return 0;
    for (size_t t = 0; t < ARRAY_SIZE(tiles); t++)
        for (size_t p = 0; p < ARRAY_SIZE(pairs); p++) {
            if (pairs[p].input != tiles[t].input)
                continue;
            assert(count + 4 <= CONFIG_LIST_MAX);
            count +=
                list_layouts(config_of_tile(arch, &tiles[t], pairs[p].output), ret_configs + count);
        }
    return count;
}
