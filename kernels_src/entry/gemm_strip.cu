/*
 * The hopper family's kernel for a short K and rows that start anywhere: what such a product takes
 * is the time to store D, so a warp has rows and columns by which its sums leave as whole aligned
 * chunks of D (tile/strip_map.cuh). No copies are made first, and nothing waits for tensor copies:
 * threads load, shift and multiply, by mma.sync. sm_90a.
 *
 * Roles: none. All threads copy a K tile of both operands and shift B into its panel; each warp
 * shifts and multiplies its rows of A, and stores its part. The next K tile, of this unit or the
 * next, is under way meanwhile. A CTA walks the units of its feed.
 *
 * Who meets whom: all threads, at barrier 0, twice in every K tile: when all that was copied has
 * come, and the panel and A's tile before have been read; when the panel is filled, and what was
 * copied of B has been read. Once between two jobs. A tile that leaves as one run of memory meets
 * once more (epi/store_strip_run.cuh).
 */
#include "abi/job.h"
#include "epi/store_strip.cuh"
#include "epi/store_strip_run.cuh"
#include "load/strip_raw.cuh"
#include "mma/strip_tile.cuh"
#include "sched/row_walk.cuh"
#include "sched/turn.cuh"

extern __shared__ __align__(1024) u8 dynamic_shared[];

struct strip_kernel {
    const gemmd_job &job;
    row_walk work;
    strip_loader loads;
    u32 s_base;

    DEVICE strip_kernel(const gemmd_job &of)
        : job(of), work(of, blockIdx.x, gridDim.x), s_base(cvta_to_shared(dynamic_shared))
    {
    }

    /* The unit's first K tile is on its way. */
    DEVICE void open()
    {
        if (!work.has_unit())
            return;
        loads.open(job, work.place_of(work.at));
        loads.raw_from_gmem(job, s_base, threadIdx.x);
    }

    /* Of one K tile; whether the unit has another. */
    DEVICE bool accum_from_gmem(strip_tile &tile)
    {
        auto a = loads.a(job, s_base);
        bool has_more;

        cp_async_wait_group<0>();
        bar_sync_0();
        panel_from_raw(s_base, loads.b(job, s_base), threadIdx.x);
        bar_sync_0();
        has_more = loads.advance(job);
        if (has_more) {
            loads.raw_from_gmem(job, s_base, threadIdx.x);
        } else {
            work.advance();
            open();
        }
        tile.accum_from_smem(s_base, a);
        return has_more;
    }

    DEVICE void compute()
    {
        row_walk::unit unit = work.at;
        strip_tile tile = tile_at(work.place_of(unit));
        /* The first K tile, mostly the only one, stands apart: in a loop it would have fewer
         * registers than it takes. */
        bool has_more = accum_from_gmem(tile);

        while (has_more)
            has_more = accum_from_gmem(tile);
        leave(tile, work.place_of(unit));
    }

    DEVICE strip_tile tile_at(const raster::place &at) const
    {
        return {elements_beyond(job, at, threadIdx.x / 32),
                extent_in(job.n - at.col, cfg::tile_n + chunk_elements), threadIdx.x};
    }

    DEVICE void leave(const strip_tile &tile, const raster::place &at) const
    {
        if (is_run(job, at))
            strip_run_writer(job, at, s_base).gmem_from_accum(tile);
        else
            strip_writer(job, at, tile, s_base).gmem_from_accum(tile);
    }
};

extern "C" __global__ void __launch_bounds__(cfg::threads, cfg::ctas_per_multiprocessor)
    gemm(const __grid_constant__ gemmd_tensor_feed feed)
{
    lead_on(feed.jobs[0]);
    if (!are_settled(feed.jobs[0]))
        griddepcontrol_wait();
    /* Mostly of one: without a way back there are registers for it. */
    for (u32 i = 0; i < GEMMD_TENSOR_JOBS && i < feed.job_count; i++) {
        strip_kernel kernel(feed.jobs[i]);

        if (i > 0)
            bar_sync_0(); /* what the job before had in shared memory has been read */
        kernel.open();
        while (kernel.work.has_unit())
            kernel.compute();
    }
    take_turn(); /* those that had nothing to do */
}
