/*
 * The parts of a product's sums, added and stored: D from the workspace.
 *
 * A CTA takes a chunk, 16 x 8 elements: each of its teams of threads, one for each element, adds
 * what a share of the splits has of it, in the order of their numbers, and the first team adds the
 * shares. So the bits depend neither on the grid nor on how many tiles the job has here. Elements
 * and not wider loads: what a thread has under way is a matter of registers.
 *
 * Who meets whom: all threads, at barrier 0: when the shares are there, and when they have been read.
 */
#pragma once

#include "epi/ops.cuh"
#include "epi/part_writer.cuh"
#include "ptx/shared.cuh"
#include "ptx/sync.cuh"
#include "sched/raster.cuh"

struct part_sum {
    static constexpr u32 chunk_elements = smem::chunk_size / 4;
    static constexpr u32 teams = GEMMD_SUM_THREADS / chunk_elements;
    static constexpr u32 tile_chunks = smem::warps * smem::chunks;
    static constexpr int splits_at_once = 20; /* loads under way */

    static_assert((teams - 1) * smem::chunk_size == GEMMD_SUM_SHARED_MEMORY, "others' shares");

    const gemmd_job &job;
    u32 s_shares;
    u32 element, team;
    u32 splits, units;
    raster::extent size;

    DEVICE part_sum(const gemmd_job &in_job, u32 in_s_shares, u32 thread)
        : job(in_job), s_shares(in_s_shares), element(thread % chunk_elements),
          team(thread / chunk_elements), splits(max_of((int)in_job.splits, 1)),
          size(raster::extent_of(in_job))
    {
        u32 left = raster::units(job, size) - (u32)job.first_tile;

        units = job.tile_count != 0 ? (u32)job.tile_count : left;
    }

    DEVICE u32 s_share_of(u32 of_team) const
    {
        return s_shares + ((of_team - 1) * chunk_elements + element) * 4;
    }

    /* Of one team. */
    DEVICE float share_of(u64 g_from) const
    {
        constexpr u32 step = cfg::sharers * part::tile_size;
        u32 first = team * splits / teams, end = (team + 1) * splits / teams;
        float sum = 0;

        g_from += (u64)first * step;
#pragma unroll 1
        for (int left = (int)(end - first); left > 0; left -= splits_at_once) {
            float r[splits_at_once];

#pragma unroll
            for (int i = 0; i < splits_at_once; i++, g_from += step)
                if (i < left)
                    r[i] = ld_global_f32(g_from);
#pragma unroll
            for (int i = 0; i < splits_at_once; i++)
                if (i < left)
                    sum += r[i];
        }
        return sum;
    }

    /* What the first team returns is the sum of all. */
    DEVICE float sum_of(u64 g_from) const
    {
        float sum = share_of(g_from);

        if (team > 0)
            st_shared_f32(s_share_of(team), sum);
        bar_sync_0();
        if (team == 0)
#pragma unroll
            for (u32 other = 1; other < teams; other++)
                sum += ld_shared_f32(s_share_of(other));
        bar_sync_0();
        return sum;
    }

    /* chunk: of the tile's, as warps have them (mma/wgmma.cuh). */
    DEVICE void gmem_from_sum(float sum, u32 unit, u32 tile, u32 chunk) const
    {
        constexpr u32 block_chunks = cfg::tile_n / 8;
        raster::place at = raster::place_of(size, (raster::number)job.first_tile + unit, job);
        u32 warp = chunk / smem::chunks, in_warp = chunk % smem::chunks, lane = element / 4;
        int row = (int)at.row +
                  (int)(tile % cfg::cluster_m * cfg::tile_m + warp / 4 * cfg::group_m +
                        in_warp / block_chunks * 64 + warp % 4 * 16 + element % 4 / 2 * 8 + lane / 4);
        int col = (int)at.col + (int)(tile / cfg::cluster_m * cfg::tile_n +
                                      in_warp % block_chunks * 8 + lane % 4 * 2 + element % 2);

        if (row < job.m && col < job.n)
            epilogue(job, at.item).gmem_from_accum(sum, row, col);
    }

    DEVICE void run(u32 cta, u32 ctas) const
    {
        u32 chunks = units * cfg::sharers * tile_chunks;

#pragma unroll 1
        for (u32 chunk = cta; chunk < chunks; chunk += ctas) {
            u32 place = chunk / tile_chunks, in_tile = chunk % tile_chunks;
            u32 unit = place / cfg::sharers, tile = place % cfg::sharers;
            u64 g_from = part::g_tile(job, unit, splits, 0, tile) + in_tile * smem::chunk_size;
            float sum = sum_of(g_from + element * 4);

            if (team == 0)
                gmem_from_sum(sum, unit, tile, in_tile);
        }
    }
};
