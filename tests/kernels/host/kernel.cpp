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

#include HOST_ENTRY

/* The conversions that ptx/cvt.cuh borrows: the object stands alone. */
extern "C" {
#include "../../../daemon/core/dtype.c"
}

#define SHARED_POISON 0xff /* NaN in every floating type */

alignas(1024) u8 dynamic_shared[cfg::cluster * cfg::shared_memory];

static const gemmd_feed *launched;
static const gemmd_tensor_maps *launched_maps;

/* The portable entry takes no maps; that of hopper takes the beginning of a feed. */
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

static void body()
{
    call(launched_maps, 0);
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
    repacked = what;
    for (u32 cta = 0; cta < ctas; cta++)
        machine::run_cluster(cta, ctas, 1, GEMMD_REPACK_THREADS, dynamic_shared, 0);
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
    machine::self.begins_early = cfg::is_hopper;
    machine::self.inputs_settled = feed->jobs[0].flags & GEMMD_JOB_INPUTS_SETTLED;
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
