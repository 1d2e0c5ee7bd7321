/*
 * The portable family: cp.async or element copies, mma.sync or FMA. sm_80 and later.
 *
 * Roles: none. All warps load, all multiply, all store. A CTA stays and walks the tiles of all jobs
 * of its feed.
 */
#include "abi/job.h"
#include "epi/store_vec.cuh"
#include "mma/mma_f64.cuh"
#include "mma/mma_sync.cuh"
#include "mma/simt.cuh"
#include "pipe/pipeline.cuh"
#include "sched/job_feed.cuh"

typedef warp_tile<cfg::unit, cfg::warp_m, cfg::warp_n> warp_type;
typedef pipeline_of<cfg::copies_elements, warp_type>::type pipeline;

extern __shared__ __align__(128) u8 dynamic_shared[];

struct cta_context {
    u32 s_ring;
    int thread, warp, lane;
};

DEVICE void accum_from_gmem(warp_type &warp,
                            const gemmd_job &job,
                            const raster::place &at,
                            const cta_context &me)
{
    u64 g_a = job.a + (u64)(at.item * job.stride_a * cfg::input_size);
    u64 g_b = job.b + (u64)(at.item * job.stride_b * cfg::input_size);
    operand<tile_a> a(g_a, job.lda, at.row, job.m, me.thread);
    operand<tile_b> b(g_b, job.ldb, at.col, job.n, me.thread);
    i64 k = job.alpha != 0 ? job.k : 0; /* without K tiles nothing of A and B is read */

    pipeline(a, b, me.s_ring, k).run(warp, k);
}

/* The warp tile's window in D and C. */
DEVICE window window_of(const warp_type &warp, const gemmd_job &job, const raster::place &at)
{
    i64 row = at.row + warp.origin_m, col = at.col + warp.origin_n;
    i64 in_c = at.item * job.stride_c + row * job.ldc + col;
    i64 in_d = at.item * job.stride_d + row * job.ldd + col;

    return {job.c + (u64)(in_c * cfg::output_size),
            job.d + (u64)(in_d * cfg::output_size),
            job.ldc,
            job.ldd,
            row,
            col,
            extent_in(job.m - row, cfg::warp_m),
            extent_in(job.n - col, cfg::warp_n)};
}

DEVICE void compute_tile(const gemmd_job &job, const raster::place &at, const cta_context &me)
{
    warp_type warp(me.warp, me.lane);

    warp.clear();
    accum_from_gmem(warp, job, at, me);
    gmem_from_accum(window_of(warp, job, at), epilogue(job, at.item), warp,
                    smem::slab_of_warp(me.s_ring, me.warp), me.lane);
    bar_sync_0(); /* slabs are read before the next tile fills the ring */
}

extern "C" __global__ void __launch_bounds__(cfg::threads, cfg::ctas_per_multiprocessor)
    gemm(const __grid_constant__ gemmd_feed feed)
{
    cta_context me = {cvta_to_shared(dynamic_shared), (int)threadIdx.x, (int)threadIdx.x / 32,
                      (int)threadIdx.x % 32};
    job_feed work(feed, blockIdx.x, gridDim.x);
    raster::place at;

    while (work.take(at))
        compute_tile(work.job(), at, me);
}
