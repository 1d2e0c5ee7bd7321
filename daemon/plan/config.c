/*
 * The three forms of a configuration, and what a launch of it needs. What the text does not carry
 * (warp grid, CTAs per multiprocessor) follows from its row in config_tile.c.
 */
#include "config.h"

#include "config_tile.h"

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

/* Names of this file's own, in the order of enum dtype: the text is a cache key and a wire format,
 * it must not follow a change elsewhere. */
static const char *const dtype_texts[DTYPE_COUNT] = {
    "none", "bf16", "fp16", "fp32", "fp64", "int8", "int32",
};

static const char *const schedule_texts[] = {
    [CONFIG_SCHEDULE_MMA] = "mma",
    [CONFIG_SCHEDULE_SIMT] = "simt",
    [CONFIG_SCHEDULE_TILED] = "tiled",
    [CONFIG_SCHEDULE_TMA] = "tma",
    [CONFIG_SCHEDULE_PIPELINED] = "pipelined",
    [CONFIG_SCHEDULE_PERSISTENT] = "persistent",
    [CONFIG_SCHEDULE_COOP] = "coop",
    [CONFIG_SCHEDULE_PINGPONG] = "pingpong",
    [CONFIG_SCHEDULE_SPLIT] = "split",
    [CONFIG_SCHEDULE_PARTS] = "parts",
    [CONFIG_SCHEDULE_STREAM] = "stream",
    [CONFIG_SCHEDULE_OUTER] = "outer",
    [CONFIG_SCHEDULE_DOT] = "dot",
    [CONFIG_SCHEDULE_STRIP] = "strip",
};

static const char *const copy_texts[] = {
    [CONFIG_COPY_V16] = "v16",       [CONFIG_COPY_ELEMENT] = "element", [CONFIG_COPY_TMA] = "tma",
    [CONFIG_COPY_REPACK] = "repack", [CONFIG_COPY_REALIGN] = "realign",
};

static const struct arch *arch_find(uint32_t number)
{
    for (size_t i = 0; i < ARRAY_SIZE(archs); i++)
        if (archs[i].number == number)
            return &archs[i];
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

void config_to_text(const struct config *config, char ret_text[CONFIG_TEXT_MAX])
{
    const struct arch *arch = arch_find(config->arch);
    const char *input = dtype_texts[config->input], *output = dtype_texts[config->output];
    char a = config->trans_a ? 't' : 'n', b = config->trans_b ? 't' : 'n', along_k[16] = "";

    if (config->family == CONFIG_CPU) {
        snprintf(ret_text, CONFIG_TEXT_MAX, "cpu.%s.%s.%c%c", input, output, a, b);
        return;
    }
    assert(arch);
    if (config->cluster_k > 1)
        snprintf(along_k, sizeof along_k, "x%u", config->cluster_k);
    snprintf(ret_text, CONFIG_TEXT_MAX, "%s.%s.%s.%c%c.%ux%ux%u.s%u.c%ux%u%s.%s.%s%s", arch->text,
             input, output, a, b, config->tile_m, config->tile_n, config->tile_k, config->stages,
             config->cluster_m, config->cluster_n, along_k, schedule_texts[config->schedule],
             copy_texts[config->copy], config->is_swapped ? ".swapped" : "");
}

/* The canonical text is its own grammar: a text is one exactly when some known configuration
 * prints as it. A few hundred short prints, and no parser that could accept more than it writes. */
static bool cpu_from_text(const char *text, struct config *ret_config)
{
    char candidate[CONFIG_TEXT_MAX];

    for (size_t i = 0; i < CONFIG_PAIRS_COUNT * 4; i++) {
        struct config config = {
            .family = CONFIG_CPU,
            .input = config_pairs[i / 4].input,
            .output = config_pairs[i / 4].output,
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
    struct config_resources resources;
    struct config_tile tile;
    bool is_known;

    *ret_defines = (struct config_defines){0};
    if (config->family == CONFIG_CPU)
        return;
    is_known = config_tile_find(config, &tile);
    assert(is_known);
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
    define_add(ret_defines, "CLUSTER_K", config->cluster_k);
    define_add(ret_defines, "SWAPPED", config->is_swapped);
    define_add(ret_defines, "SCHEDULE", config->schedule);
    define_add(ret_defines, "COPY", config->copy);
    define_add(ret_defines, "WARPS_M", tile.warps_m);
    define_add(ret_defines, "WARPS_N", tile.warps_n);
    define_add(ret_defines, "SHARED_MEMORY", resources.shared_memory);
    define_add(ret_defines, "CTAS_PER_MULTIPROCESSOR", resources.ctas_per_multiprocessor);
}

/* The epilogue reuses the ring: each warp takes a slab of 16 accumulator rows of its warp tile, a
 * row padded by 32 bytes (kernels_src/tile/smem_map.cuh, which asserts the same number). */
static uint32_t slab_bytes(const struct config_tile *tile)
{
    uint32_t accumulator = tile->input == DTYPE_FP64 ? 8 : 4;
    uint32_t row = tile->n / tile->warps_n * accumulator + 32;

    return tile->warps_m * tile->warps_n * 16 * row;
}

#define HOPPER_ROW       128 /* bytes: a row of the 128-byte swizzle, of all tiles in shared memory */
#define HOPPER_BUFFER    64  /* rows of D that leave at once */
#define HOPPER_ROOM      512 /* bytes: for rows of D that start anywhere */
#define HOPPER_GROUP     4   /* warps that multiply together */
#define HOPPER_PAIR      2   /* warps beside one such group, in split configurations */
#define HOPPER_BARRIER   8   /* bytes */
#define HOPPER_RAW_TILES 3   /* of rows that start anywhere */

static void portable_resources(const struct config_tile *tile,
                               struct config_resources *ret_resources)
{
    uint32_t ring = tile->stages * (tile->m + tile->n) * tile->k * element_size(tile->input);

    ret_resources->threads = tile->warps_m * tile->warps_n * 32;
    ret_resources->shared_memory = MAX(ring, slab_bytes(tile));
    ret_resources->is_persistent = true;
}

/* What one copy moves of an input tile: `sharers` CTAs of a cluster copy a part each, rows of a
 * tile that has K along them, rows of each block of 64 columns in one that has not
 * (kernels_src/load/tma.cuh). */
static struct config_box
input_box(uint32_t span, uint32_t tile_k, bool is_k_major, uint32_t sharers)
{
    return (struct config_box){.columns = 64, .rows = (is_k_major ? span : tile_k) / sharers};
}

/* A warp's fragments go by pairs of 16 rows x 8 columns in fp32. What it offers to the other CTAs,
 * and pages to turn its own pairs round in (kernels_src/tile/smem_hopper.cuh). */
static uint32_t exchange_bytes(const struct config *config, const struct config_tile *tile)
{
    uint32_t rows = config->is_swapped ? tile->n : tile->m;
    uint32_t columns = config->is_swapped ? tile->m : tile->n;
    uint32_t chunks = rows / 16 * (columns / 8) / tile->warps_m;
    uint32_t share = (chunks + 2 * tile->cluster_k - 1) / (2 * tile->cluster_k) * 2;
    uint32_t pages = MIN(share / 2, tile->cluster_k == 1 ? 16 / tile->warps_m : 2);

    return tile->warps_m * ((tile->cluster_k - 1) * share * 16 * 8 + pages * 16 * (16 + 4)) * 4;
}

/* The aligned chunks around a K tile of each input, as many tiles as are on their way or shifted
 * (kernels_src/tile/smem_hopper.cuh). */
static uint32_t raw_bytes(const struct config *config, const struct config_tile *tile)
{
    bool is_k_major_a = !config->trans_a, is_k_major_b = config->trans_b;
    uint32_t rows_a = is_k_major_a ? tile->m : tile->k, rows_b = is_k_major_b ? tile->n : tile->k;
    uint32_t row_a = is_k_major_a ? tile->k : tile->m, row_b = is_k_major_b ? tile->k : tile->n;
    uint32_t size = element_size(config->input);

    return HOPPER_RAW_TILES * (rows_a * (row_a * size + 16) + rows_b * (row_b * size + 16));
}

/* Two for each group, where a tile leaves by way of shared memory: by tensor copies, beside the
 * products of the next one, or of rows that start anywhere (kernels_src/epi/way_out.cuh). */
static uint32_t buffers_bytes(const struct config *config, const struct config_tile *tile)
{
    bool is_late = tile->schedule == CONFIG_SCHEDULE_COOP && tile->stages > 1 && tile->m == 128 &&
                   tile->n == 256;
    uint32_t room = tile->copy == CONFIG_COPY_REPACK ? HOPPER_ROOM : 0;

    if (tile->copy == CONFIG_COPY_TMA && element_size(config->output) != 4 && !is_late)
        return 0;
    return tile->warps_m / HOPPER_GROUP * (2 * HOPPER_BUFFER * HOPPER_ROW + room);
}

static void hopper_resources(const struct config *config,
                             const struct config_tile *tile,
                             struct config_resources *ret_resources)
{
    uint32_t groups = tile->warps_m / HOPPER_GROUP;
    uint32_t ring = tile->stages * (tile->m + tile->n) * tile->k * element_size(config->input);
    bool is_split = config_is_split(config);
    bool leaves_parts = config_leaves_parts(config); /* from registers */
    uint32_t buffers = leaves_parts ? 0
                       : is_split   ? exchange_bytes(config, tile)
                                    : buffers_bytes(config, tile);
    uint32_t out_barriers = leaves_parts ? 0 : is_split ? 2 * tile->warps_m : groups;
    uint32_t barriers = (2 * tile->stages + out_barriers) * HOPPER_BARRIER;
    bool realigns = tile->copy == CONFIG_COPY_REALIGN;
    uint32_t loading_warps =
        leaves_parts || (is_split && groups == 1 && !realigns) ? HOPPER_PAIR : HOPPER_GROUP;
    struct config_box out = {HOPPER_ROW / element_size(config->output), HOPPER_BUFFER};

    ret_resources->threads = tile->warps_m * 32;
    if (tile->schedule >= CONFIG_SCHEDULE_COOP)
        ret_resources->threads += loading_warps * 32;
    ret_resources->shared_memory =
        ring + buffers + barriers + (realigns ? raw_bytes(config, tile) : 0);
    ret_resources->is_persistent = tile->schedule >= CONFIG_SCHEDULE_PERSISTENT;
    ret_resources->begins_early = true;
    ret_resources->repacks = tile->copy == CONFIG_COPY_REPACK;
    ret_resources->leaves_parts = leaves_parts;
    /* Rows that start anywhere are for threads. */
    if (!realigns) {
        ret_resources->box[CONFIG_BOX_A] =
            input_box(tile->m, tile->k, !config->trans_a, config->cluster_n);
        ret_resources->box[CONFIG_BOX_B] =
            input_box(tile->n, tile->k, config->trans_b, config->cluster_m);
    }
    /* Elements of 16 bits are stored by threads, and C is read by them
     * (kernels_src/epi/way_out.cuh). */
    if (tile->copy == CONFIG_COPY_TMA && !is_split && element_size(config->output) == 4)
        ret_resources->box[CONFIG_BOX_D] = out;
}

#define DIRECT_CHUNK 8  /* elements that a thread stores at once, and rows that begin alike */
#define DIRECT_PITCH 36 /* words: kernels_src/tile/panels.cuh */
#define DIRECT_BANKS 32
#define DIRECT_PAD   4 /* words, where rows that begin alike are a multiple of the banks */

/* Panels of both operands in 32 bits, or on the way out a chunk of each thread. */
static uint32_t outer_bytes(const struct config_tile *tile)
{
    uint32_t alike = tile->m / DIRECT_CHUNK;
    uint32_t pitch = alike + (alike % DIRECT_BANKS == 0 ? DIRECT_PAD : 0);
    uint32_t panels = tile->k * DIRECT_CHUNK * (pitch + DIRECT_PITCH) * 4;

    return MAX(panels, tile->warps_m * 32 * DIRECT_CHUNK * 4);
}

#define STRIP_SLAB (16 * 16 * 16) /* bytes of a warp on its way out: sixteen rows of chunks */

/* A panel of B, which has a chunk's columns before the tile; raw rows, a chunk longer, of B, and of
 * A twice; and what a warp has on its way out (kernels_src/tile/strip_map.cuh). */
static uint32_t strip_bytes(const struct config_tile *tile)
{
    uint32_t row = tile->k * 2;

    return tile->m * (row + 3 * (row + DIRECT_CHUNK * 2)) + tile->warps_m * STRIP_SLAB;
}

static void direct_resources(const struct config *config,
                             const struct config_tile *tile,
                             struct config_resources *ret_resources)
{
    uint32_t threads = tile->warps_m * 32;

    ret_resources->threads = threads;
    if (tile->schedule == CONFIG_SCHEDULE_OUTER) {
        ret_resources->shared_memory = outer_bytes(tile);
    } else if (tile->schedule == CONFIG_SCHEDULE_STRIP) {
        ret_resources->shared_memory = strip_bytes(tile);
        /* Elements of an A that is transposed take more registers than a second CTA leaves. */
        if (config->trans_a)
            ret_resources->ctas_per_multiprocessor = 1;
    } else {
        ret_resources->shared_memory = threads * 4; /* a sum of each */
    }
    ret_resources->is_persistent = true;
    ret_resources->begins_early = true;
}

#define STREAM_SLICE  4  /* steps of K whose columns lie in a panel */
#define STREAM_MARGIN 8  /* elements before them */
#define STREAM_BANKS  32 /* words */
#define STREAM_WORD   4

/* A ring of steps of the operand that has many rows, and two panels of the other one's columns,
 * each twice, by fours whose distance is half of the banks (kernels_src/tile/stream.cuh). */
static void stream_resources(const struct config *config,
                             const struct config_tile *tile,
                             struct config_resources *ret_resources)
{
    uint32_t rows = config->is_swapped ? tile->n : tile->m;
    uint32_t columns = config->is_swapped ? tile->m : tile->n;
    uint32_t ring = tile->stages * rows * tile->k * element_size(tile->input);
    uint32_t pitch = (STREAM_SLICE * tile->k + STREAM_MARGIN) / 2 + 1;
    uint32_t half = STREAM_BANKS / 2;
    uint32_t four = (4 * pitch + half - 1) / STREAM_BANKS * STREAM_BANKS + half;

    ret_resources->threads = tile->warps_m * 32;
    ret_resources->shared_memory = ring + 2 * 2 * (columns / 4 * four) * STREAM_WORD;
    ret_resources->is_persistent = true;
    ret_resources->begins_early = true;
    ret_resources->leaves_parts = true;
}

void config_resources(const struct config *config, struct config_resources *ret_resources)
{
    struct config_tile tile;
    bool is_known;

    *ret_resources = (struct config_resources){0};
    if (config->family == CONFIG_CPU)
        return;
    is_known = config_tile_find(config, &tile);
    assert(is_known);
    ret_resources->ctas_per_multiprocessor = tile.ctas_per_multiprocessor;
    if (config_is_direct(config))
        direct_resources(config, &tile, ret_resources);
    else if (config_streams(config))
        stream_resources(config, &tile, ret_resources);
    else if (config->family == CONFIG_HOPPER)
        hopper_resources(config, &tile, ret_resources);
    else
        portable_resources(&tile, ret_resources);
}

bool config_equal(const struct config *a, const struct config *b)
{
    return a->family == b->family && a->arch == b->arch && a->input == b->input &&
           a->output == b->output && a->trans_a == b->trans_a && a->trans_b == b->trans_b &&
           a->tile_m == b->tile_m && a->tile_n == b->tile_n && a->tile_k == b->tile_k &&
           a->stages == b->stages && a->cluster_m == b->cluster_m && a->cluster_n == b->cluster_n &&
           a->cluster_k == b->cluster_k && a->is_swapped == b->is_swapped &&
           a->schedule == b->schedule && a->copy == b->copy;
}

static const char *hopper_source(const struct config *config)
{
    if (config->schedule == CONFIG_SCHEDULE_TILED)
        return "entry/gemm_tiled.cu";
    if (config_streams(config))
        return "entry/gemm_stream.cu";
    if (config_leaves_parts(config))
        return "entry/gemm_hopper_parts.cu";
    if (config->schedule == CONFIG_SCHEDULE_OUTER)
        return "entry/gemm_outer.cu";
    if (config->schedule == CONFIG_SCHEDULE_DOT)
        return "entry/gemm_dot.cu";
    if (config->schedule == CONFIG_SCHEDULE_STRIP)
        return "entry/gemm_strip.cu";
    if (config_is_split(config))
        return config->copy == CONFIG_COPY_REPACK ? "entry/gemm_hopper_split_repack.cu"
                                                  : "entry/gemm_hopper_split.cu";
    return config->copy == CONFIG_COPY_REPACK ? "entry/gemm_hopper_repack.cu"
                                              : "entry/gemm_hopper.cu";
}

const char *config_source(const struct config *config)
{
    switch (config->family) {
    case CONFIG_PORTABLE:
        return "entry/gemm_portable.cu";
    case CONFIG_HOPPER:
        return hopper_source(config);
    default:
        return NULL;
    }
}

const char *config_entry(const struct config *config)
{
    return config_source(config) ? "gemm" : NULL;
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

size_t config_list(uint32_t arch, struct config ret_configs[CONFIG_LIST_MAX])
{
    return arch_find(arch) ? config_tiles_list(arch, ret_configs) : 0;
}

size_t config_list_planned(const struct config *kind, struct config ret_configs[CONFIG_PLANNED_MAX])
{
    return arch_find(kind->arch) ? config_tiles_planned(kind, ret_configs) : 0;
}
