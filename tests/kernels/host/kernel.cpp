/*
 * One configuration of the portable kernel as a shared object of the host: the sources of
 * kernels_src/ as they are, with the headers of host/ptx/ in place of kernels_src/ptx/.
 */
#include "cuda_words.h"

#include "entry/gemm_portable.cu"

/* The conversions that ptx/cvt.cuh borrows: the object stands alone. */
extern "C" {
#include "../../../daemon/core/dtype.c"
}

#define SHARED_POISON 0xff /* NaN in every floating type */

alignas(128) u8 dynamic_shared[cfg::shared_memory];

static const gemmd_feed *launched;

static void body()
{
    gemm(*launched);
}

extern "C" __attribute__((visibility("default"))) void
emulate(const gemmd_feed *feed, u32 ctas, int copies_late, int turns_backwards)
{
    machine::self.body = body;
    machine::self.copies_late = copies_late;
    machine::self.turns_backwards = turns_backwards;
    launched = feed;
    for (u32 cta = 0; cta < ctas; cta++) {
        memset(dynamic_shared, SHARED_POISON, sizeof dynamic_shared);
        machine::run_cta(cta, ctas, cfg::threads);
    }
}
