/*
 * The way out of split configurations: fragments, as wgmma leaves them in registers, are summed
 * over the CTAs of the cluster, then over its splits, and go to D by rows of 16.
 *
 * A warp works with nobody but the warp of its number in the other CTAs, and in the other splits:
 * no barrier of a CTA, and the fragments of one warp may be on their way while another multiplies.
 *
 * Cluster: each CTA owns a share of the chunks. A warp offers the others' chunks in its shared
 * memory, and takes for its own ones what the others offer: its own, then those of the CTA after
 * it, and so on round the cluster. So an element has one owner and one order. (Pushing, by stores
 * that a barrier counts, costs several cycles for each lane's 16 bytes, longer than a large tile's
 * products.)
 *
 * Splits: the owner puts the sum into the workspace and counts itself. The final split, which has
 * some more of K, finds all others there, adds them in the order of their numbers, and puts the
 * counter back to zero for the next launch. It waits only for splits that have said they run, and
 * these wait for nobody. When one has not, the final split does as the others, and who comes last
 * adds all: the order, and so the bits, are the same.
 *
 * `arrived`: the warp of each peer arrives when it has offered, the warp waits, the first phase is
 * that of the first unit. `taken`: the warp of each peer that owns arrives when it has read, the warp
 * waits from the second unit on, for the phase of the unit before. Both waits acquire what the other
 * CTA released, and what it read is as much a part of that as what it wrote.
 *
 * A peer that owns nothing does not say `taken`: it could do so before all lanes here have waited
 * for the phase before.
 */
#pragma once

#include "epi/ops.cuh"
#include "epi/page_elements.cuh"
#include "epi/quad.cuh"
#include "load/tma.cuh"
#include "mma/wgmma.cuh"
#include "pipe/slot_ring.cuh"
#include "ptx/global.cuh"
#include "ptx/movmatrix.cuh"
#include "ptx/shared.cuh"
#include "sched/job_feed.cuh"

/* Where a warp's fragments belong. Rows and columns are the kernel's: of D's transpose, when that
 * is what it computes. */
struct fragment_place {
    int row, col; /* of the first block's first element of this warp */
    i64 item;
    bool has_more; /* units may follow */
};

struct fragment_writer {
    static constexpr int others = cfg::cluster_k - 1;
    /* Chunks that leave together: no more than registers suffice for beside the others. Two CTAs of
     * a multiprocessor have half of them each. */
    static constexpr bool has_few_registers = cfg::ctas_per_multiprocessor > 1;
    static constexpr int at_once =
        min_of(smem::share, smem::share > 24 || has_few_registers ? 4 : 8);

    u32 s_base;
    int warp; /* of all that multiply */
    u32 lane;
    u32 rank; /* along K */
    u32 tile; /* of the unit's, where a cluster computes several */
    u32 units;  /* so far: their phases of both barriers follow each other */
    float sum[smem::share * 4];

    DEVICE fragment_writer(u32 in_s_base, int in_warp, u32 in_lane, const cta_place &place)
        : s_base(in_s_base), warp(in_warp), lane(in_lane), rank(place.rank_k),
          tile(place.rank_n * cfg::cluster_m + place.rank_m), units(0)
    {
    }

    /* Chunks of this CTA's share. */
    DEVICE int owned() const
    {
        constexpr bool is_even = smem::share * cfg::cluster_k == smem::chunks;
        int left = smem::chunks - (int)rank * smem::share;

        return is_even ? smem::share : max_of(min_of(left, smem::share), 0);
    }

    /* --- within the cluster ------------------------------------------------------------------ */

    /* The CTA of the cluster that has part `peer` of this one's tile. */
    DEVICE u32 cta_of(u32 peer) const
    {
        return peer * cfg::sharers + tile;
    }

    DEVICE void offer(const group_tile &accum, int owner) const
    {
        u32 s_to = smem::offered(s_base, warp, rank, owner) + lane * 16;

#pragma unroll
        for (int i = 0; i < smem::share; i++) {
            int chunk = owner * smem::share + i;

            if (chunk < smem::chunks)
                st_shared_v4_f32(s_to + i * smem::chunk_size, accum.chunk(chunk));
        }
    }

    /* By selection: of a branch for each owner the compiler makes an index into the accumulators,
     * which registers do not have. */
    DEVICE void keep(const group_tile &accum, int owner)
    {
#pragma unroll
        for (int i = 0; i < smem::share * 4; i++)
            if (owner * smem::share + i / 4 < smem::chunks) {
                float own = accum.chunk(owner * smem::share + i / 4)[i % 4];

                sum[i] = cfg::cluster_k == 1 || (u32)owner == rank ? own : sum[i];
            }
    }

    /* All loads before the first sum: they take as long as one. */
    DEVICE void add_offered()
    {
        float r[max_of(others, 1)][smem::share][4];

#pragma unroll
        for (int distance = 1; distance <= others; distance++) {
            u32 peer = (rank + distance) % cfg::cluster_k;
            u32 s_from = mapa_shared_cluster(smem::offered(s_base, warp, peer, rank), cta_of(peer));

#pragma unroll
            for (int i = 0; i < smem::share; i++)
                if (i < owned())
                    ld_shared_cluster_v4_f32(r[distance - 1][i],
                                             s_from + lane * 16 + i * smem::chunk_size);
        }
#pragma unroll
        for (int distance = 1; distance <= others; distance++)
#pragma unroll
            for (int i = 0; i < smem::share * 4; i++)
                if (i / 4 < owned())
                    sum[i] += r[distance - 1][i / 4][i % 4];
    }

    /* By whole warps, one lane for each peer that it concerns. */
    DEVICE void tell(u32 s_barrier, u32 peers) const
    {
        bar_warp_sync(0xffffffff);
        if (lane < peers && lane != rank)
            mbarrier_arrive_release_cluster(s_barrier, cta_of(lane));
    }

    DEVICE void sum_cluster(const group_tile &accum, bool has_more)
    {
        if (smem::takers(rank) > 0 && units > 0)
            wait_parity_of_cluster(smem::taken_barrier(s_base, warp), (units & 1) ^ 1);
#pragma unroll
        for (int owner = 0; owner < cfg::cluster_k; owner++) {
            keep(accum, owner);
            if ((u32)owner != rank)
                offer(accum, owner);
        }
        tell(smem::arrived_barrier(s_base, warp), smem::owners);
        if (owned() > 0) {
            wait_parity_of_cluster(smem::arrived_barrier(s_base, warp), units & 1);
            add_offered();
            if (has_more)
                tell(smem::taken_barrier(s_base, warp), cfg::cluster_k);
        }
        units++;
    }

    /* --- between clusters -------------------------------------------------------------------- */

    DEVICE u64 g_partial(const job_feed &work, u32 split) const
    {
        u64 place = ((u64)work.unit() * work.splits + split) * cfg::sharers + tile;
        u64 chunk = (place * smem::warps + warp) * smem::chunks + rank * smem::share;

        return work.job().workspace + GEMMD_SPLIT_COUNTERS * 4 + chunk * smem::chunk_size +
               lane * 16;
    }

    DEVICE void gmem_from_partial(u64 g_to) const
    {
#pragma unroll
        for (int i = 0; i < smem::share; i++)
            if (i < owned())
                st_global_v4_f32(g_to + i * smem::chunk_size, sum[i * 4], sum[i * 4 + 1],
                                 sum[i * 4 + 2], sum[i * 4 + 3]);
    }

    /* Of the warp of this number in all splits of the tile: how many have put down their sum, and
     * beside them, from bit 16 on, how many have begun to. */
    DEVICE u64 g_counter(const job_feed &work) const
    {
        u32 cta = work.unit() * cfg::cluster + tile * cfg::cluster_k + rank;

        return work.job().workspace + (cta * smem::warps + warp) * 4;
    }

    DEVICE static bool is_final(const job_feed &work)
    {
        return work.split() == work.splits - 1;
    }

    /* By all splits but the final one, before their products. */
    DEVICE void announce(const job_feed &work) const
    {
        if (work.splits > 1 && !is_final(work) && owned() > 0 && lane == 0)
            red_add_relaxed_gpu_u32(g_counter(work), 1 << 16);
    }

    /* The final split, first lane: true when all others have put down their sums, which it waits for
     * if they run; false when one of them may need this CTA's place to begin. */
    DEVICE static bool has_others(u64 g_count, u32 others)
    {
        u32 count = ld_acquire_gpu_u32(g_count), start = globaltimer_lo();

        while ((count & 0xffff) != others) {
            if (count >> 16 != others)
                return false;
            if (globaltimer_lo() - start > wait_limit_ns) {
                fault();
                return false;
            }
            count = ld_acquire_gpu_u32(g_count);
        }
        return true;
    }

    /* Puts down the sum, and counts. True for who comes last: the final split has not waited. The
     * lanes' stores come before the first lane's atomic operation by the warp's barrier, and what
     * that one saw before the lanes' loads by the next. */
    DEVICE bool put_down(const job_feed &work) const
    {
        u32 before = 0;

        gmem_from_partial(g_partial(work, work.split()));
        bar_warp_sync(0xffffffff);
        if (lane == 0)
            before = atom_add_acq_rel_gpu_u32(g_counter(work), 1) & 0xffff;
        bar_warp_sync(0xffffffff);
        return shfl_sync_idx(before, 0) == work.splits - 1;
    }

    /* True in the warp that adds all splits of the unit. */
    DEVICE bool has_all(const job_feed &work) const
    {
        u64 g_count = g_counter(work);
        bool has = false;

        if (is_final(work)) {
            if (lane == 0)
                has = has_others(g_count, work.splits - 1);
            bar_warp_sync(0xffffffff);
            has = shfl_sync_idx(has, 0);
        }
        has = has || put_down(work);
        if (has && lane == 0)
            st_global_u32(g_count, 0);
        return has;
    }

    /* What all splits have of some chunks, in the order of their numbers: loads of several at once,
     * where chunks are few. What the warp has itself is added in its turn, too, but need not come
     * back from memory. */
    template <int FIRST, int COUNT> DEVICE void sum_parts(const job_feed &work)
    {
        constexpr int batch = smem::share <= 4 ? (has_few_registers ? 8 : 16) / COUNT : 1;
        u64 g_from = g_partial(work, 0), g_step = g_partial(work, 1) - g_from;
        u32 mine = work.split();
        float total[COUNT * 4] = {};

#pragma unroll 1
        for (u32 split = 0; split < work.splits; split += batch) {
            float r[batch][COUNT][4];

#pragma unroll
            for (int b = 0; b < batch; b++)
#pragma unroll
                for (int i = 0; i < COUNT; i++)
                    if (split + b < work.splits && split + b != mine && FIRST + i < owned())
                        ld_global_v4_f32(r[b][i], g_from + (split + b) * g_step +
                                                      (FIRST + i) * smem::chunk_size);
#pragma unroll
            for (int b = 0; b < batch; b++)
                if (split + b == mine) {
#pragma unroll
                    for (int i = 0; i < COUNT * 4; i++)
                        total[i] += sum[FIRST * 4 + i];
                } else if (split + b < work.splits) {
#pragma unroll
                    for (int i = 0; i < COUNT * 4; i++)
                        if (FIRST + i / 4 < owned())
                            total[i] += r[b][i / 4][i % 4];
                }
        }
#pragma unroll
        for (int i = 0; i < COUNT * 4; i++)
            sum[FIRST * 4 + i] = total[i];
    }

    /* --- to D -------------------------------------------------------------------------------- */

    /* Two chunks, 16 x 16, as rows of D. */
    DEVICE void smem_from_pair(u32 s_page, const float *r) const
    {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            u32 row = i % 2 * 8 + lane / 4, col = i / 2 * 8 + lane % 4 * 2;

            if constexpr (cfg::is_swapped) {
                st_shared_f32(s_page + col * smem::page_pitch + row * 4, r[i * 2]);
                st_shared_f32(s_page + (col + 1) * smem::page_pitch + row * 4, r[i * 2 + 1]);
            } else {
                st_shared_v2_f32(s_page + row * smem::page_pitch + col * 4, r[i * 2], r[i * 2 + 1]);
            }
        }
    }

    union eight {
        u32 words[2 * cfg::output_size];
        out::bits elements[8];
    };

    /* Eight neighbours of a row, or those of them that there are. */
    DEVICE static void regs_from_gmem(float (&r)[8], u64 g_row, int count)
    {
        eight bits;

        if (count == 8) {
#pragma unroll
            for (int i = 0; i < 2 * cfg::output_size; i += 4)
                ld_global_v4_u32((u32(&)[4])bits.words[i], g_row + i * 4);
#pragma unroll
            for (int i = 0; i < 8; i++)
                r[i] = out::from_bits(bits.elements[i]);
        } else {
#pragma unroll
            for (int i = 0; i < 8; i++)
                r[i] = i < count ? reg_from_gmem(element_address(g_row, i)) : 0;
        }
    }

    DEVICE static void gmem_from_regs(u64 g_row, const float (&r)[8], int count)
    {
        eight bits;

        if (count == 8) {
#pragma unroll
            for (int i = 0; i < 8; i++)
                bits.elements[i] = out::to_bits(r[i]);
#pragma unroll
            for (int i = 0; i < 2 * cfg::output_size; i += 4)
                st_global_v4_u32(g_row + i * 4, (const u32(&)[4])bits.words[i]);
        } else {
#pragma unroll
            for (int i = 0; i < 8; i++)
                if (i < count)
                    gmem_from_reg(element_address(g_row, i), r[i]);
        }
    }

    /* Half a row of a page: eight elements of D, from a column that 16 bytes of it begin with. */
    DEVICE void gmem_from_page(u32 s_half, const epilogue &op, i64 row, i64 col) const
    {
        const gemmd_job &job = op.job;
        int count = row < job.m ? extent_in(job.n - col, 8) : 0;
        float r[8], r_c[8];

        if (count == 0)
            return;
        ld_shared_v4_f32((float(&)[4])r[0], s_half);
        ld_shared_v4_f32((float(&)[4])r[4], s_half + 16);
        if (op.reads_c)
            regs_from_gmem(
                r_c, element_address(job.c, op.item * job.stride_c + row * job.ldc + col), count);
        op.apply(r, r_c, row, col);
        gmem_from_regs(element_address(job.d, op.item * job.stride_d + row * job.ldd + col), r,
                       count);
    }

    /* Chunks of all pages, what leaves at a time by them. */
    static constexpr int in_pages = smem::pages * 2;

    /* The indices of sums must be constants: a part is found by comparing. */
    template <int FIRST = 0> DEVICE void smem_from_part(u32 s_page, int first) const
    {
        if (first == FIRST)
#pragma unroll
            for (int i = 0; i < min_of(in_pages, smem::share - FIRST); i += 2)
                smem_from_pair(s_page + i / 2 * smem::page_size, sum + (FIRST + i) * 4);
        if constexpr (FIRST + in_pages < smem::share)
            smem_from_part<FIRST + in_pages>(s_page, first);
    }

    /* A few pairs at a time, from pages, which can be counted through in a loop: what is done to a
     * row is long, and there once. */
    DEVICE void gmem_from_pages(const epilogue &op, const fragment_place &to) const
    {
        constexpr int block_chunks = cfg::tile_n / 8;
        u32 s_page = smem::page(s_base, warp);
        u32 s_half = s_page + lane / 2 * smem::page_pitch + lane % 2 * 32;
        bool is_by_elements = cfg::stores_anywhere && !page_elements::are_rows_aligned(op);

#pragma unroll 1
        for (int first = 0; first < owned(); first += in_pages) {
            bar_warp_sync(0xffffffff); /* the pages before have been read */
            smem_from_part(s_page, first);
            bar_warp_sync(0xffffffff);
#pragma unroll 1
            for (int i = 0; i < in_pages && first + i < owned(); i += 2) {
                int chunk = (int)rank * smem::share + first + i;
                i64 row = to.row + chunk / block_chunks * block_span;
                i64 col = to.col + chunk % block_chunks * 8;
                i64 d_row = cfg::is_swapped ? col : row, d_col = cfg::is_swapped ? row : col;

                if (is_by_elements)
                    page_elements{op, lane}.gmem_from_page(s_page + i / 2 * smem::page_size,
                                                           d_row, d_col);
                else
                    gmem_from_page(s_half + i / 2 * smem::page_size, op, d_row + lane / 2,
                                   d_col + lane % 2 * 8);
            }
        }
    }

    /*
     * Plain products in 16 bits: from registers. Of a pair a quad has four chunks of 16 bytes, two of
     * each of two rows; each lane takes one. Of the transpose of D, the quad first gets rows of D.
     */
    DEVICE void gmem_from_sums(const epilogue &op, const fragment_place &to) const
    {
        constexpr int block_chunks = cfg::tile_n / 8;
        const gemmd_job &job = op.job;

#pragma unroll
        for (int i = 0; i < smem::share; i += 2) {
            int chunk = (int)rank * smem::share + i;
            int row = to.row + chunk / block_chunks * block_span;
            int col = to.col + chunk % block_chunks * 8;
            i64 d_row = (cfg::is_swapped ? col : row) + (int)(lane % 4 / 2 * 8 + lane / 4);
            i64 d_col = (cfg::is_swapped ? row : col) + (int)(lane % 2 * 8);
            u32 r[4];

#pragma unroll
            for (int c = 0; c < 2; c++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    const float *r_pair = sum + (i + c) * 4 + half * 2;
                    u32 pair = pack_pair(op.plain(r_pair[0]), op.plain(r_pair[1]));

                    if constexpr (cfg::is_swapped)
                        r[c * 2 + half] = movmatrix_trans(pair);
                    else
                        r[half * 2 + c] = pair;
                }
            quad_transpose(r, lane);
            st_global_cs_v4_u32_if(
                i < owned() && d_row < job.m && d_col < job.n,
                element_address(job.d, op.item * job.stride_d + d_row * job.ldd + d_col), r);
        }
    }

    /* Some chunks after the others: with sums that come back from memory registers suffice for a
     * few. */
    template <int FIRST = 0> DEVICE void sum_all_parts(const job_feed &work)
    {
        constexpr int count = min_of(at_once, smem::share - FIRST);

        sum_parts<FIRST, count>(work);
        if constexpr (FIRST + count < smem::share)
            sum_all_parts<FIRST + count>(work);
    }

    /* All lanes of the warp. */
    DEVICE void
    gmem_from_accum(const group_tile &accum, const job_feed &work, const fragment_place &to)
    {
        if constexpr (cfg::cluster_k > 1)
            sum_cluster(accum, to.has_more);
        else
            keep(accum, 0);
        if (owned() == 0)
            return;
        if (work.splits > 1) {
            if (!has_all(work))
                return;
            sum_all_parts(work);
        }

        epilogue op(work.job(), to.item);

        bool has_whole_chunks =
            cfg::output_size == 2 && op.job.n % 8 == 0 &&
            (!cfg::stores_anywhere || page_elements::are_rows_aligned(op));

        if constexpr (cfg::output_size == 2)
            if (op.is_plain() && has_whole_chunks) {
                gmem_from_sums(op, to);
                return;
            }
        gmem_from_pages(op, to);
    }
};
