/*
 * A configuration: everything that is fixed when a kernel is compiled. M, N, K, leading dimensions
 * and pointers are not in it; they stay run-time values, so that a model needs few kernels.
 *
 * Three equal forms: this struct, the canonical text (cache key, log, metrics, command line), and
 * the -D list that kernels_src/base/config.cuh reads. Text and struct convert both ways without
 * loss. Pure C, no allocation, no CUDA.
 *
 * Text: ARCH.IN.OUT.LAYOUT.MxNxK.sSTAGES.cCLUSTER.SCHEDULE.COPY, for example
 *   sm80.bf16.bf16.nt.128x256x32.s4.c1x1.mma.v16               (portable)
 *   sm90a.bf16.bf16.nt.128x256x64.s4.c2x1.coop.tma             (hopper)
 *   sm90a.bf16.bf16.nt.64x64x128.s6.c1x1.split.tma.swapped     (hopper, for small M)
 *   sm90a.bf16.bf16.nt.128x128x64.s5.c1x1x2.split.tma          (hopper, for a long K)
 *   sm90a.bf16.bf16.nt.512x64x32.s4.c1x1.stream.element        (hopper, for few columns)
 *   sm90a.bf16.bf16.nt.1x1x16.s1.c1x1.dot.element              (hopper, for few elements)
 * LAYOUT: n as stored row-major, t transposed, as in BLAS with A[M,K] and B[N,K] being `nt`.
 * CLUSTER: CTAs along M and N, and along K where more than one share a tile. Tile and cluster are
 * those of D, also where the operands are exchanged (`swapped`).
 */
#pragma once

#include "../core/dtype.h"
#include "../core/std.h"

enum config_family {
    CONFIG_CPU, /* no kernel: the CPU worker's BLAS. Text: "cpu.IN.OUT.LAYOUT" */
    CONFIG_PORTABLE,
    CONFIG_HOPPER,
    CONFIG_BLACKWELL,
};

enum config_schedule {
    CONFIG_SCHEDULE_MMA,  /* portable: all warps load and compute, mma.sync */
    CONFIG_SCHEDULE_SIMT, /* portable: the same with FMA on CUDA cores (true fp32) */
    /* hopper, wgmma; each step adds to the one before */
    CONFIG_SCHEDULE_TILED,      /* all threads copy, meet, multiply */
    CONFIG_SCHEDULE_TMA,        /* one thread copies, by tensor copies: copy, wait, multiply */
    CONFIG_SCHEDULE_PIPELINED,  /* a ring of slots */
    CONFIG_SCHEDULE_PERSISTENT, /* CTAs stay and walk the tiles, copies run across them */
    CONFIG_SCHEDULE_COOP,       /* a warp that copies; the warps that multiply share a tile */
    CONFIG_SCHEDULE_PINGPONG,   /* and each group of four has a tile of its own */
    CONFIG_SCHEDULE_SPLIT,      /* as COOP, but a tile's K may be shared: by the CTAs of a cluster,
                                   and by clusters */
    CONFIG_SCHEDULE_PARTS,  /* K is shared by all clusters of a tile: each leaves its part of the
                               sum, and a launch behind the product's adds them */
    CONFIG_SCHEDULE_STREAM, /* the same without wgmma, any alignment: many rows along a long K,
                               multiplied as they lie in memory, by few columns */
    /* hopper, any alignment, without what wgmma needs until its first product: threads load */
    CONFIG_SCHEDULE_OUTER, /* narrow D, short K: sums of outer products on CUDA cores */
    CONFIG_SCHEDULE_DOT, /* few elements of D, each by threads that share K; a tile is an element */
    CONFIG_SCHEDULE_STRIP, /* short K: mma.sync, a warp's rows begin alike, D in whole chunks */
};

enum config_copy {
    CONFIG_COPY_V16,     /* every row starts on 16 bytes: cp.async of 16 bytes, vector stores */
    CONFIG_COPY_ELEMENT, /* any alignment: element loads and stores; of hopper as schedules say */
    CONFIG_COPY_TMA,     /* every row starts on 16 bytes: tensor copies, both ways */
    CONFIG_COPY_REPACK,  /* any alignment: a launch before copies inputs to rows that tensor copies
                            can read; stores of 16 bytes inside rows, of elements at their ends */
    CONFIG_COPY_REALIGN, /* any alignment, in one launch: threads load, shift and store as tensor
                            copies would have; D by elements where its rows start anywhere */
};

struct config {
    enum config_family family;
    uint32_t arch; /* compute capability times ten: 80 86 87 89 90 100 103 120 */
    enum dtype input, output;
    bool trans_a, trans_b;
    uint32_t tile_m, tile_n, tile_k; /* CTA tile, elements */
    uint32_t stages;                 /* ring depth */
    uint32_t cluster_m, cluster_n;
    uint32_t cluster_k; /* CTAs that compute one tile, each a part of K */
    bool is_swapped;    /* the kernel computes the transpose of D: N on the side of wgmma that has
                           64 rows, M on the one that can be narrow */
    enum config_schedule schedule;
    enum config_copy copy;
};

#define CONFIG_TEXT_MAX    96 /* with the terminating zero */
#define CONFIG_DEFINES_MAX 32
#define CONFIG_DEFINE_MAX  48

/* -D list in a fixed order, each "-DNAME=VALUE": part of the cache key. */
struct config_defines {
    size_t count;
    char text[CONFIG_DEFINES_MAX][CONFIG_DEFINE_MAX];
};

/* What one tensor copy moves: rows of 128 bytes. */
struct config_box {
    uint32_t columns, rows; /* elements; 0: the kernel takes no tensor map of the operand */
};

enum { CONFIG_BOX_A, CONFIG_BOX_B, CONFIG_BOX_C, CONFIG_BOX_D, CONFIG_BOX_COUNT };

/* What a launch needs to know; follows from the configuration alone. */
struct config_resources {
    uint32_t threads;                 /* of a CTA */
    uint32_t shared_memory;           /* dynamic, bytes */
    uint32_t ctas_per_multiprocessor; /* what the launch bounds promise */
    bool is_persistent;               /* CTAs walk: no more of them than fit at once */
    bool begins_early;                /* the kernel waits for the grid before it by itself */
    bool repacks;                     /* the module has the kernel CONFIG_REPACK_ENTRY, too */
    bool leaves_parts;                /* the module has the kernel CONFIG_SUM_ENTRY, too */
    struct config_box box[CONFIG_BOX_COUNT];
};

void config_to_text(const struct config *config, char ret_text[CONFIG_TEXT_MAX]);
/* False when the text is not a canonical configuration. */
bool config_from_text(const char *text, struct config *ret_config);
void config_to_defines(const struct config *config, struct config_defines *ret_defines);
void config_resources(const struct config *config, struct config_resources *ret_resources);
bool config_equal(const struct config *a, const struct config *b);

/* The kernel file ("entry/gemm_portable.cu"), its entry point and the compiler's architecture
 * ("sm_90a") for a configuration. */
const char *config_source(const struct config *config);
const char *config_entry(const struct config *config);
#define CONFIG_REPACK_ENTRY "repack" /* see CONFIG_COPY_REPACK */
#define CONFIG_SUM_ENTRY    "sum"    /* see CONFIG_SCHEDULE_PARTS, _STREAM */
/* The level of ptxas's optimiser. */
unsigned config_optimization(const struct config *config);
const char *config_architecture(uint32_t arch); /* NULL when this version does not know it */
/* 80 for a device of capability 8.0, ...: the newest known architecture that runs on the device;
 * 0 when none does. */
uint32_t config_arch_for_device(uint32_t compute_major, uint32_t compute_minor);

/* CTAs of a cluster. */
static inline uint32_t config_cluster(const struct config *config)
{
    return config->cluster_m * config->cluster_n * config->cluster_k;
}

static inline bool config_is_split(const struct config *config)
{
    return config->schedule >= CONFIG_SCHEDULE_SPLIT && config->schedule <= CONFIG_SCHEDULE_STREAM;
}

static inline bool config_leaves_parts(const struct config *config)
{
    return config->schedule == CONFIG_SCHEDULE_PARTS || config->schedule == CONFIG_SCHEDULE_STREAM;
}

static inline bool config_streams(const struct config *config)
{
    return config->schedule == CONFIG_SCHEDULE_STREAM;
}

static inline bool config_is_direct(const struct config *config)
{
    return config->schedule >= CONFIG_SCHEDULE_OUTER;
}

#define CONFIG_LIST_MAX 250 /* per architecture; a budget, tests hold it */

/* Every configuration of this architecture, in a fixed order: for each pair of types and layout at
 * least one. Returns the count, at most CONFIG_LIST_MAX. */
size_t config_list(uint32_t arch, struct config ret_configs[CONFIG_LIST_MAX]);

#define CONFIG_PLANNED_MAX 32 /* that compute one kind of product */

/* Of that list, what the plan chooses from for a kind of product: those with `kind`'s architecture,
 * types and transpositions, without the lower steps of the ladder, which exist to be measured. In
 * the same order, and without making the list, since every product asks. */
size_t config_list_planned(const struct config *kind,
                           struct config ret_configs[CONFIG_PLANNED_MAX]);
