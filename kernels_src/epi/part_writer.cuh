/*
 * A tile's part of the sum to the workspace, for the kernel behind this one (epi/part_sum.cuh): the
 * accumulators as wgmma leaves them in registers, chunk after chunk, 16 bytes of each lane side by
 * side.
 */
#pragma once

#include "load/tma.cuh"
#include "mma/wgmma.cuh"
#include "ptx/global.cuh"

namespace part
{

constexpr u32 warp_size = smem::chunks * smem::chunk_size; /* bytes, of a warp in a tile */
constexpr u32 tile_size = smem::warps * warp_size;

/* unit: of those that the job has here; tile: of the unit's. */
DEVICE u64 g_tile(const gemmd_job &job, u32 unit, u32 splits, u32 split, u32 tile)
{
    u64 place = ((u64)unit * splits + split) * cfg::sharers + tile;

    return job.workspace + GEMMD_SPLIT_COUNTERS * 4 + place * tile_size;
}

} // namespace part

struct part_writer {
    u32 warp; /* of all that multiply */
    u32 lane;
    u32 tile; /* of the unit's */

    DEVICE part_writer(u32, int in_warp, u32 in_lane, const cta_place &place)
        : warp((u32)in_warp), lane(in_lane), tile(place.rank_n * cfg::cluster_m + place.rank_m)
    {
    }

    /* Nobody waits for this one. */
    DEVICE void announce(const job_feed &) const
    {
    }

    template <typename PLACE>
    DEVICE void gmem_from_accum(const group_tile &accum, const job_feed &work, const PLACE &) const
    {
        u64 g_to = part::g_tile(work.job(), work.unit(), work.splits, work.split(), tile) +
                   warp * part::warp_size + lane * 16;

        u64 policy = createpolicy_evict_last();

#pragma unroll
        for (int i = 0; i < smem::chunks; i++) {
            const float *r = accum.chunk(i);

            st_global_hint_v4_f32(g_to + i * smem::chunk_size, r[0], r[1], r[2], r[3], policy);
        }
    }
};
