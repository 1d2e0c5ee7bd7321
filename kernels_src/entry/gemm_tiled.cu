/*
 * The first step of the hopper ladder, to be measured and read: nothing overlaps. All threads copy
 * a K tile, meet, multiply it, meet, and copy the next. A CTA for each tile. What the steps above
 * take away from this is the waiting; tiles, products and the way out are theirs (gemm_hopper.cu).
 */
#include "abi/job.h"
#include "epi/way_out.cuh"
#include "load/cp_async.cuh"
#include "mma/wgmma.cuh"
#include "pipe/stamps.cuh"
#include "ptx/griddepcontrol.cuh"
#include "sched/job_feed.cuh"
#include "tile/copied_tile.cuh"

extern __shared__ __align__(1024) u8 dynamic_shared[];

struct tiled_cta {
    u32 s_base;
    u32 thread;
    int group; /* of warps, which shares the tile with the other by rows */
    stamps &copies, &products;

    /* What threads write to shared memory is the generic proxy's; wgmma reads through the async
     * one. Everybody has fenced his own part when all have met. */
    template <typename A, typename B>
    DEVICE void smem_from_gmem_and_meet(operand<A> &a, operand<B> &b, int k_left) const
    {
        smem_from_gmem(smem::a_of_slot(s_base, 0), a, k_left);
        smem_from_gmem(smem::b_of_slot(s_base, 0), b, k_left);
        cp_async_commit_group();
        copies.copies_issued();
        cp_async_wait_group<0>();
        fence_proxy_async_shared_cta();
        bar_sync_0();
        products.slot_seen();
    }

    DEVICE void
    accum_from_gmem(group_tile &tile, const gemmd_job &job, const raster::place &at) const
    {
        u64 g_a = job.a + (u64)(at.item * job.stride_a * cfg::input_size);
        u64 g_b = job.b + (u64)(at.item * job.stride_b * cfg::input_size);
        operand<copied_tile<tile_a>> a(g_a, job.lda, at.row, job.m, thread);
        operand<copied_tile<tile_b>> b(g_b, job.ldb, at.col, job.n, thread);
        i64 k = job.alpha != 0 ? job.k : 0; /* without K tiles nothing of A and B is read */

        if (k == 0)
            tile.clear();
#pragma unroll 1
        for (i64 done = 0; done < k; done += cfg::tile_k) {
            smem_from_gmem_and_meet(a, b, extent_in(k - done, cfg::tile_k));
            tile.accum_from_smem<cfg::tile_n>(group_tile::slot_word(s_base, 0),
                                              group * group_tile::blocks, done > 0,
                                              products.beside(s_base, ring_position()));
            products.products_issued();
            wgmma_wait_group<0>();
            products.wait_ended();
            bar_sync_0(); /* all have read the slot */
        }
        products.products_done();
        tile.fence();
    }
};

extern "C" __global__ void __launch_bounds__(cfg::threads, cfg::ctas_per_multiprocessor)
    gemm(const __grid_constant__ gemmd_tensor_feed feed,
         const __grid_constant__ gemmd_tensor_maps maps)
{
    u32 warp = shfl_sync_idx(threadIdx.x / 32, 0);
    stamps copies, products;
    tiled_cta me = {cvta_to_shared(dynamic_shared), threadIdx.x, (int)warp / 4, copies, products};
    job_feed work(feed, blockIdx.x, gridDim.x);
    way_out way = {me.s_base, me.group, warp % 4, threadIdx.x % 32};
    raster::place at;

    copies.open(GEMMD_STAMP_LOADER, threadIdx.x == 0);
    products.open(GEMMD_STAMP_GROUP_0 + me.group, threadIdx.x % 128 == 0);
    if (warp == 0)
        barriers_init(me.s_base, threadIdx.x);
    bar_sync_0();
    griddepcontrol_wait();
    while (work.take(at)) {
        const gemmd_job &job = work.job();
        group_tile tile;
        out_place to = {job, maps.of[work.index], (int)at.row + me.group * cfg::group_m,
                        (int)at.col, (int)at.item};

        products.tile_begins();
        me.accum_from_gmem(tile, job, at);
        way.gmem_from_accum(tile, to, epilogue(job, to.item));
        products.epilogue_ends();
    }
    way.drain();
    products.close();
}
