/*
 * One configuration of a kernel as a shared object of the host: the sources of kernels_src/ as they
 * are, with the headers of host/ptx/ in place of kernels_src/ptx/.
 */
#include "cuda_words.h"

#include "abi/job.h"

/* For entries that have no kernel of this name: theirs, if there is one, matches better. */
static void repack(...)
{
}

static void sum(...)
{
}

#include HOST_ENTRY

/* The conversions that ptx/cvt.cuh borrows: the object stands alone. */
extern "C" {
#include "../../../daemon/core/dtype.c"
}

#define SHARED_POISON 0xff /* NaN in every floating type */

alignas(1024) u8 dynamic_shared[cfg::cluster * cfg::shared_memory];

static const gemmd_feed *launched;
static const gemmd_tensor_maps *launched_maps;

/* The portable entry takes no maps; those of hopper take the beginning of a feed, and some no maps.
 */
template <typename MAPS, typename FEED = gemmd_tensor_feed>
static auto call(MAPS maps, int) -> decltype(gemm(*(const FEED *)launched, *maps))
{
    gemm(*(const FEED *)launched, *maps);
}

template <typename MAPS, typename FEED = gemmd_feed>
static auto call(MAPS, long) -> decltype(gemm(*(const FEED *)launched))
{
    gemm(*(const FEED *)launched);
}

template <typename MAPS, typename FEED = gemmd_tensor_feed>
static auto call(MAPS, ...) -> decltype(gemm(*(const FEED *)launched))
{
    gemm(*(const FEED *)launched);
}

static void body()
{
    call(launched_maps, 0);
}

/* To whole chunks of 16 bytes, in which inputs may be read. */
static void add_input(
    u64 base, i64 rows, i64 cols, i64 ld, i64 stride, i64 batch)
{
    u64 elements = (u64)((batch - 1) * stride + (rows - 1) * ld + cols);
    u64 end = base + elements * cfg::input_size;

    if (base != 0 && rows > 0 && cols > 0)
        machine::self.inputs.push_back({base & ~(u64)15, (end + 15) & ~(u64)15});
}

static void add_inputs(const gemmd_job &job, bool trans_a, bool trans_b)
{
    add_input(job.a, trans_a ? job.k : job.m, trans_a ? job.m : job.k, job.lda, job.stride_a,
              job.batch);
    add_input(job.b, trans_b ? job.n : job.k, trans_b ? job.k : job.n, job.ldb, job.stride_b,
              job.batch);
}

/* What an operand is, in whole chunks of memory, and where its copy lies. */
static void add_free(const gemmd_repack_operand &of)
{
    u64 elements = (u64)((of.items - 1) * of.stride + (of.rows - 1) * of.ld + of.columns);
    u64 copied = (u64)((of.items - 1) * of.to_stride + of.rows * of.to_ld);

    if (of.rows == 0)
        return;
    machine::self.free.push_back(
        {of.source & ~(u64)15, (of.source + elements * cfg::input_size + 15) & ~(u64)15});
    machine::self.free.push_back({of.destination, of.destination + copied * cfg::input_size});
}

static const gemmd_repack *repacked;

static void repack_body()
{
    repack(*repacked);
}

extern "C" __attribute__((visibility("default"))) void
emulate_repack(const gemmd_repack *what, u32 ctas, int turns_backwards)
{
    machine::self.body = repack_body;
    machine::self.turns_backwards = turns_backwards;
    machine::self.begins_early = true;
    machine::self.lets_next_begin = what->flags & GEMMD_REPACK_AT_ONCE;
    for (const gemmd_repack_operand &of : what->operand)
        if (machine::self.lets_next_begin)
            add_free(of);
    repacked = what;
    for (u32 cta = 0; cta < ctas; cta++)
        machine::run_cluster(cta, ctas, 1, GEMMD_REPACK_THREADS, dynamic_shared, 0);
    machine::self.free.clear();
    machine::self.lets_next_begin = false;
}

/* Its own CTAs, one after the other; the next launch may begin from their first instruction on. */
static void sum_body()
{
    sum(*(const gemmd_tensor_feed *)launched);
}

extern "C" __attribute__((visibility("default"))) void
emulate_sum(const gemmd_feed *feed, u32 ctas, int turns_backwards)
{
    machine::self.body = sum_body;
    machine::self.turns_backwards = turns_backwards;
    machine::self.begins_early = true;
    machine::self.inputs_settled = false;
    machine::self.lets_next_begin = true;
    launched = feed;
    for (u32 cta = 0; cta < ctas; cta++) {
        memset(dynamic_shared, SHARED_POISON, sizeof dynamic_shared);
        machine::run_cluster(cta, ctas, 1, GEMMD_SUM_THREADS, dynamic_shared, 0);
    }
    machine::self.lets_next_begin = false;
}

extern "C" __attribute__((visibility("default"))) void emulate(const gemmd_feed *feed,
                                                               const gemmd_tensor_maps *maps,
                                                               u32 walkers,
                                                               int copies_late,
                                                               int turns_backwards)
{
    u32 ctas = walkers * cfg::cluster;

    machine::self.body = body;
    machine::self.copies_late = copies_late;
    machine::self.turns_backwards = turns_backwards;
    machine::self.one_ahead = copies_late == turns_backwards; /* so each goes with either order */
    machine::self.begins_early = cfg::is_hopper;
    machine::self.inputs_settled = feed->jobs[0].flags & GEMMD_JOB_INPUTS_SETTLED;
    machine::self.inputs.clear();
    for (u32 i = 0; i < feed->job_count; i++)
        add_inputs(feed->jobs[i], GEMMD_TRANS_A, GEMMD_TRANS_B);
    launched = feed;
    launched_maps = maps;
    for (u32 cta = 0; cta < ctas; cta += cfg::cluster) {
        memset(dynamic_shared, SHARED_POISON, sizeof dynamic_shared);
        machine::run_cluster(cta, ctas, cfg::cluster, cfg::threads, dynamic_shared,
                             cfg::shared_memory);
    }
}

#ifdef GEMMD_STAMPS
extern "C" __attribute__((visibility("default"))) gemmd_stamps *emulate_stamps()
{
    return &gemmd_stamp_buffer;
}
#endif
