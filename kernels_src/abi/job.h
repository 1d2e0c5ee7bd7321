/*
 * One unit of work as the device sees it. Shared between C (worker, front) and the kernels, so:
 * fixed-width types only, no padding left to a compiler, sizes and offsets asserted on both sides.
 *
 * Addresses are in the address space of whoever executes the job: device addresses for a CUDA
 * worker, plain pointers for the CPU worker. Sizes and strides are in elements, 64 bits wide.
 * Matrices are row-major (daemon/core/problem.h has the rules); transposition is a flag.
 */
#ifndef GEMMD_ABI_JOB_H
#define GEMMD_ABI_JOB_H

#ifdef __CUDACC_RTC__
typedef unsigned char gemmd_u8;
typedef unsigned int gemmd_u32;
typedef unsigned long long gemmd_u64;
typedef long long gemmd_i64;
#    define GEMMD_STATIC_ASSERT  static_assert
#    define GEMMD_ALIGNED(bytes) __align__(bytes)
#else
#    include <stdint.h>
typedef uint8_t gemmd_u8;
typedef uint32_t gemmd_u32;
typedef uint64_t gemmd_u64;
typedef int64_t gemmd_i64;
#    ifdef __cplusplus
#        define GEMMD_STATIC_ASSERT static_assert
#    else
#        define GEMMD_STATIC_ASSERT _Static_assert
#    endif
#    define GEMMD_ALIGNED(bytes) __attribute__((aligned(bytes)))
#endif

/* struct gemmd_job.flags */
enum {
    GEMMD_JOB_TRANS_A = 1u << 0,
    GEMMD_JOB_TRANS_B = 1u << 1,
    /* What each value of the bias belongs to, a row of D or a column; neither: no bias. */
    GEMMD_JOB_BIAS_PER_ROW = 1u << 2,
    GEMMD_JOB_BIAS_PER_COLUMN = 1u << 3,
    /* The operand lies in host memory: the worker stages it before the kernel sees the job. */
    GEMMD_JOB_HOST_A = 1u << 4,
    GEMMD_JOB_HOST_B = 1u << 5,
    GEMMD_JOB_HOST_C = 1u << 6,
    GEMMD_JOB_HOST_D = 1u << 7,
    GEMMD_JOB_HOST_BIAS = 1u << 8,
    /* By the worker, of a kernel that begins beside the end of the grid before it: that one does
     * not write A or B, which may be read at once. */
    GEMMD_JOB_INPUTS_SETTLED = 1u << 9,
    /* By the worker, of such a kernel whose grid leaves room: the next one may begin as soon as all
     * of this one's CTAs have. What it may read at once follows from all that may still run. */
    GEMMD_JOB_NEXT_AT_ONCE = 1u << 10,
};

struct gemmd_job {
    gemmd_u64 a, b, c, d; /* addresses; a and b are 0 when k = 0, c is 0 when beta = 0 */
    gemmd_i64 m, n, k, batch;
    gemmd_i64 lda, ldb, ldc, ldd;
    gemmd_i64 stride_a, stride_b, stride_c, stride_d;
    double alpha, beta;
    gemmd_u32 input, output; /* enum dtype of daemon/core/dtype.h */
    gemmd_u32 flags;
    gemmd_u32 activation; /* enum activation of daemon/core/activation.h */
    gemmd_u64 first_tile,
        tile_count;      /* a slice of the tiles, in what a cluster computes; count 0: the rest */
    gemmd_u64 workspace; /* device address, when splits > 1 */
    gemmd_u64 bias;      /* address of m or n elements of the output type, by the flags */
    gemmd_i64 stride_bias;
    /* A job that is timed: launched `repeats` times (0: once) one after the other, on `repeat_sets`
     * sets of operands in turns that lie `repeat_step` bytes apart. For the worker, not the kernel.
     */
    gemmd_u32 repeats, repeat_sets;
    gemmd_u64 repeat_step;
    gemmd_u32 splits; /* clusters that share a tile along K, through the workspace; 0: 1 */
    /* By the worker, of a block of a larger product: elements of D that the product has in all, or
     * UINT32_MAX. What the order of a sum follows from is the product, not the block. 0: there is
     * no larger one. */
    gemmd_u32 product_elements;
    gemmd_u64 reserved[4];
};

GEMMD_STATIC_ASSERT(sizeof(struct gemmd_job) == 256, "job size is ABI");

/*
 * The workspace of a job with splits: counters, zero before a launch and again after it; then a
 * place for every split of every tile of the slice, as large as the tile in 32 bits. A tile takes
 * a counter for each warp of each CTA, GEMMD_SPLIT_WARPS at most. For one job at a time.
 */
#define GEMMD_SPLIT_WORKSPACE (18u << 20) /* bytes in all: a wave of 128 x 256 tiles */
#define GEMMD_SPLIT_COUNTERS  4096        /* words */
#define GEMMD_SPLIT_WARPS     8           /* of a CTA, that multiply */

/* Of a CTA of the kernel that adds the parts of tiles: four threads for each of 16 x 8 elements.
 * Its shared memory fits beside that of the product's largest CTA. */
#define GEMMD_SUM_THREADS       512
#define GEMMD_SUM_SHARED_MEMORY 1536

/* Jobs one launch can carry in its parameters (4 KiB is the limit of a kernel's parameters). */
#define GEMMD_FEED_JOBS 8

/*
 * Kernel parameter of a launched (not resident) kernel: the jobs lie here and the grid leaves
 * after them. Entry points take `const __grid_constant__ struct gemmd_feed`.
 */
struct gemmd_feed {
    gemmd_u32 job_count;
    gemmd_u32 reserved[31];
    struct gemmd_job jobs[GEMMD_FEED_JOBS];
};

GEMMD_STATIC_ASSERT(sizeof(struct gemmd_feed) == 128 + GEMMD_FEED_JOBS * 256, "feed size is ABI");

/* A CUtensorMap: what a tensor copy needs to know of a matrix. Opaque, made by the driver. */
struct GEMMD_ALIGNED(64) gemmd_tensor_map {
    gemmd_u64 words[16];
};

GEMMD_STATIC_ASSERT(sizeof(struct gemmd_tensor_map) == 128, "the size of a CUtensorMap");

enum { GEMMD_TENSOR_A, GEMMD_TENSOR_B, GEMMD_TENSOR_C, GEMMD_TENSOR_D, GEMMD_TENSOR_COUNT };

/* Jobs of a feed whose kernel takes tensor maps. One: a launch pays for every kilobyte of its
 * parameters, for the 4 KiB that hold three jobs a tenth of what a small product takes. */
#ifndef GEMMD_TENSOR_JOBS
#    define GEMMD_TENSOR_JOBS 1
#endif

/* The kernel parameters of such a kernel, `const __grid_constant__` too: the beginning of a
 * struct gemmd_feed, and the maps of its jobs. The map of an operand that the job does not read is
 * zero. An operand that all items share (stride 0) has one item. */
struct gemmd_tensor_feed {
    gemmd_u32 job_count;
    gemmd_u32 reserved[31];
    struct gemmd_job jobs[GEMMD_TENSOR_JOBS];
};

GEMMD_STATIC_ASSERT(sizeof(struct gemmd_tensor_feed) == 128 + GEMMD_TENSOR_JOBS * 256,
                    "as struct gemmd_feed begins");

/* `edge`, of A and of B: a copy fills what lies outside of the matrix, slower than it moves as many
 * bytes; so where a tile has fewer rows of the operand than a copy moves, the last ones come by a
 * map of that height, and what is not there is left as it was: it belongs to no element of D. Zero
 * when there is none. */
struct gemmd_tensor_maps {
    struct gemmd_tensor_map of[GEMMD_TENSOR_JOBS][GEMMD_TENSOR_COUNT];
    struct gemmd_tensor_map edge[GEMMD_TENSOR_JOBS][2];
};

GEMMD_STATIC_ASSERT(sizeof(struct gemmd_tensor_feed) + sizeof(struct gemmd_tensor_maps) <= 4096,
                    "the limit of a kernel's parameters");

/* An input of 16-bit elements whose rows do not all start on 16 bytes, and a copy whose rows do. */
struct gemmd_repack_operand {
    gemmd_u64 source, destination;
    gemmd_i64 rows, columns, items; /* as stored; no rows: there is nothing to copy */
    gemmd_i64 ld, stride;           /* of the source, elements */
    gemmd_i64 to_ld, to_stride;     /* of the copy, multiples of 8 */
};

/*
 * Threads of a CTA that share an element of D, a power of two, in kernels whose unit is an element
 * (CONFIG_SCHEDULE_DOT): as many as have something to load at once, but no more in all than leave
 * room for another such grid. Each sums a part of K, so all blocks of a product have the same.
 * elements: of the job. Unrolled, the loop takes registers: of `tt` a multiprocessor would run four
 * CTAs and not five.
 */
#ifdef __CUDACC_RTC__
__device__ __forceinline__
#else
static inline
#endif
    gemmd_u32
    gemmd_dot_threads(const struct gemmd_job *job, gemmd_u64 elements)
{
    gemmd_u32 threads = 1;

    if (job->product_elements != 0)
        elements = job->product_elements;
#ifdef __CUDACC_RTC__
#    pragma unroll 1
#endif
    while (threads < 256 && (gemmd_i64)threads * 8 < job->k && elements * threads <= (1u << 15))
        threads *= 2;
    return threads;
}

#define GEMMD_REPACK_OPERANDS 2    /* A, B */
#define GEMMD_REPACK_THREADS  256  /* of a CTA */
#define GEMMD_REPACK_CHUNKS   1024 /* of 16 bytes that a CTA has under way */

/* Of flags: no launch that may still run writes the inputs, or reads what lies where the copies
 * go. */
#define GEMMD_REPACK_AT_ONCE 1u

/* Parameter of the kernel that makes such copies, launched before the product's. */
struct gemmd_repack {
    struct gemmd_repack_operand operand[GEMMD_REPACK_OPERANDS];
    gemmd_u64 flags;
};

GEMMD_STATIC_ASSERT(sizeof(struct gemmd_repack) == 152, "repack size is ABI");

#endif
