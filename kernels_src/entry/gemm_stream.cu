/*
 * The hopper family's kernel for few columns, a long K along many rows, and rows that start
 * anywhere: what such a product takes is the time to read those rows once. They come by aligned
 * chunks, as they are, and mma.sync multiplies them as they are: the few columns of the other
 * operand are shifted instead (tile/stream.cuh). Where D has few rows, the kernel computes its
 * transpose. sm_90a.
 *
 * Roles: none. A thread waits for its own chunks alone, of which it has several steps under way;
 * what all share are the panels of columns, for which they meet once a slice. Every unit leaves its
 * part of the sum in the workspace, and the kernel `sum`, launched behind this one, adds the parts.
 *
 * Who meets whom: all threads, at barrier 0, once a slice and once before the first one of a unit:
 * when its panel is filled, and the other one, which is filled next, is read.
 */
#include "abi/job.h"
#include "epi/stream_part.cuh"
#include "load/stream.cuh"
#include "mma/stream.cuh"
#include "sched/job_feed.cuh"
#include "sched/turn.cuh"

extern __shared__ __align__(128) u8 dynamic_shared[];

struct unit_walk {
    step_span span;
    raster::place at;
    row_stream rows;
    column_panel columns;
    u32 s_base, thread;
    int blocks; /* of sixteen columns */

    DEVICE unit_walk(const job_feed &work, const raster::place &in_at, u32 in_s_base, u32 in_thread)
        : span(steps_of(work.job(), work.split(), work.splits)), at(in_at),
          rows(work.job(), in_at, span.first, in_s_base, in_thread),
          columns(work.job(), in_at, in_thread), s_base(in_s_base), thread(in_thread),
          blocks((columns.columns + 15) / 16)
    {
    }

    DEVICE void fill_panel(int slice) const
    {
        int step = slice * stream::slice_steps;

        if (step < span.count)
            columns.smem_from_gmem(stream::panel_of(s_base, slice & 1),
                                   (span.first + step) * cfg::tile_k);
    }

    /* A step's products; then its place in the ring is free for the step that is a ring ahead.
     * Before the first step there are places only to fill. */
    DEVICE void turn(stream_tile &tile, int step, u32 s_words)
    {
        if (step >= 0) {
            cp_async_wait_group<cfg::stages - 1>();
            if (span.first + step == 0 && thread % 4 == 0 && rows.skipped != 0)
                rows.clear_skipped();
            tile.accum_from_smem(rows.s_chunks(), s_words, blocks);
        }
        rows.smem_from_gmem(step + cfg::stages < span.count);
    }

    DEVICE void accum_from_gmem(stream_tile &tile)
    {
        u32 words = panel_words(rows.skipped, thread % 32);

#pragma unroll 1
        for (int slice = -1; slice * stream::slice_steps < span.count; slice++) {
            int first = slice < 0 ? -cfg::stages : slice * stream::slice_steps;
            int end = slice < 0 ? 0 : min_of(first + stream::slice_steps, span.count);
            u32 s_words = stream::panel_of(s_base, slice & 1) + words;

            bar_sync_0();
            if (end == span.count) { /* all copies are on their way: who adds may come */
                griddepcontrol_wait();
                griddepcontrol_launch_dependents();
            }
#pragma unroll 1
            for (int step = first; step < end; step++, s_words += cfg::tile_k * 2)
                turn(tile, step, s_words);
            fill_panel(slice + 1);
        }
    }
};

DEVICE void compute(const job_feed &work, u32 s_base, u32 thread)
{
    const gemmd_job &job = work.job();
    unit_walk walk(work, work.place(), s_base, thread);
    int rows = extent_in((cfg::is_swapped ? job.n : job.m) - walk.at.row, cfg::tile_m);
    stream_tile tile;

    tile.clear();
    walk.accum_from_gmem(tile);
    griddepcontrol_wait(); /* the grid before may read the workspace */
    griddepcontrol_launch_dependents();
    part::gmem_from_accum(part::g_part(job, work.unit(), work.splits, work.split()), tile,
                          thread / 32, thread % 32, rows, walk.columns.columns);
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
        compute(work, s_base, threadIdx.x);
    take_turn(); /* those that had nothing to do */
}

/* It begins beside the end of the product, and lets the next launch begin at once, as where others
 * leave parts (entry/gemm_hopper_parts.cu). */
extern "C" __global__ void __launch_bounds__(GEMMD_SUM_THREADS, 2)
    sum(const __grid_constant__ gemmd_tensor_feed feed)
{
    griddepcontrol_launch_dependents();
    part::sum all(feed.jobs[0], threadIdx.x);
    griddepcontrol_wait();
    all.run(blockIdx.x, gridDim.x, threadIdx.x / 32);
}
