/*
 * The hopper family's kernel for short K and rows that start anywhere: what such a product takes is
 * the time to store D, so CUDA cores multiply and every thread stores whole aligned chunks of it.
 * sm_90a.
 *
 * Roles: none. All threads fetch a few K of both operands, meet, multiply; a CTA walks the units of
 * its feed. How threads share a tile: mma/outer.cuh, mma/outer_run.cuh.
 */
#include "abi/job.h"
#include "epi/store_chunks.cuh"
#include "epi/store_run.cuh"
#include "load/panels.cuh"
#include "mma/outer.cuh"
#include "mma/outer_run.cuh"
#include "sched/job_feed.cuh"
#include "sched/turn.cuh"

extern __shared__ __align__(128) u8 dynamic_shared[];

template <typename WRITER, typename TILE>
DEVICE void compute(const gemmd_job &job, const raster::place &at, TILE &tile, u32 s_base)
{
    panel_loader loads(job, at, threadIdx.x);

    loads.regs_from_gmem();
    while (int count = loads.depth()) {
        loads.smem_from_regs(s_base);
        bar_sync_0(); /* all have what all fetched */
        loads.regs_from_gmem();
        tile.accum_from_smem(s_base, count);
        bar_sync_0(); /* all have read it */
    }
    griddepcontrol_wait(); /* the grid before may read D, or write C */
    griddepcontrol_launch_dependents();
    WRITER(job, at, tile, s_base).gmem_from_accum();
    bar_sync_0(); /* what it had in shared memory is read */
}

DEVICE void compute_unit(const job_feed &work, u32 s_base)
{
    const gemmd_job &job = work.job();
    raster::place at = work.place();
    int rows_left = extent_in(job.m - at.row, cfg::tile_m);

    if (is_run(job, at)) {
        run_tile tile((u32)job.n, rows_left, threadIdx.x);
        compute<run_writer>(job, at, tile, s_base);
    } else {
        outer_tile tile(elements_beyond(job, at, threadIdx.x / 32), rows_left, threadIdx.x);
        compute<chunk_writer>(job, at, tile, s_base);
    }
}

extern "C" __global__ void __launch_bounds__(cfg::threads, cfg::ctas_per_multiprocessor)
    gemm(const __grid_constant__ gemmd_tensor_feed feed)
{
    lead_on(feed.jobs[0]);

    u32 s_base = cvta_to_shared(dynamic_shared);
    job_feed work(feed, blockIdx.x, gridDim.x);

    if (!are_settled(feed.jobs[0]))
        griddepcontrol_wait();
    while (work.take())
        compute_unit(work, s_base);
    take_turn(); /* those that had nothing to do */
}
