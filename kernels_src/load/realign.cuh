/*
 * K tiles of rows that start anywhere, from global to shared memory by the threads of the loading
 * group: aligned chunks around what is wanted, shifted in registers, stored where tensor copies
 * would have put them. For products that read their inputs so few times that a launch which copies
 * them first costs more (load/repack.cuh).
 *
 * Two K tiles are under way in registers: one arrives while the other is stored.
 *
 * `full` of a slot collects the four warps' arrivals, each behind its lanes' stores and their fence
 * towards wgmma.
 */
#pragma once

#include "load/tma.cuh"
#include "ptx/warp.cuh"
#include "tile/chunk.cuh"

constexpr int realigning_threads = 128;

/* One thread's chunks of an operand's K tile: in one column of chunks, some rows apart. */
template <typename TILE> struct realigned_operand {
    static constexpr int rows = TILE::is_k_major ? TILE::span : cfg::tile_k;
    static constexpr int row_chunks = TILE::is_k_major ? cfg::tile_k / 8 : TILE::span / 8;
    static constexpr int row_step = realigning_threads / row_chunks;
    static constexpr int count = rows / row_step;

    static_assert(!cfg::realigns ||
                      row_step * row_chunks == realigning_threads && row_step * count == rows,
                  "all threads copy alike");

    struct chunks {
        chunk_pair of[count];
        int left; /* elements of the row from the first on */
    };

    u64 g_first;    /* this thread's first chunk in the next K tile */
    u64 g_row_step; /* bytes between its chunks */
    u64 g_tile_step;
    u32 row, chunk;
    int rows_left, cols_left; /* from its first chunk on, in the next K tile */

    DEVICE realigned_operand()
    {
    }

    DEVICE realigned_operand(u64 g_base, i64 ld, int origin, i64 limit, i64 k_limit, u32 thread)
        : g_row_step((u64)ld * (row_step * 2)), row(thread / row_chunks), chunk(thread % row_chunks)
    {
        i64 first_row = row + (TILE::is_k_major ? origin : 0);
        i64 first_col = chunk * 8 + (TILE::is_k_major ? 0 : origin);

        g_first = g_base + (u64)((first_row * ld + first_col) * 2);
        g_tile_step = (u64)((TILE::is_k_major ? 1 : ld) * (cfg::tile_k * 2));
        rows_left = (int)((TILE::is_k_major ? limit : k_limit) - first_row);
        cols_left = (int)((TILE::is_k_major ? k_limit : limit) - first_col);
    }

    DEVICE void regs_from_gmem(chunks &r)
    {
        r.left = cols_left;
#pragma unroll
        for (int i = 0; i < count; i++) {
            u64 g_chunk = g_first + (u64)i * g_row_step;
            bool is_there = cols_left > 0 && rows_left > i * row_step;

            r.of[i].regs_from_gmem(g_chunk, g_chunk,
                                   is_there ? g_chunk + (u64)(min_of(cols_left, 8) * 2) : 0);
        }
        g_first += g_tile_step;
        (TILE::is_k_major ? cols_left : rows_left) -= cfg::tile_k;
    }

    /* Behind the row's end there is nothing: zeros, as tensor copies give. */
    DEVICE static void cut(u32 (&r)[4], int left)
    {
#pragma unroll
        for (int w = 0; w < 4; w++)
            r[w] = left > w * 2 + 1 ? r[w] : left > w * 2 ? r[w] & 0xffff : 0;
    }

    DEVICE void smem_from_regs(u32 s_tile, const chunks &r) const
    {
        /* Span-major tiles are blocks of 64 columns. */
        u32 s_block = s_tile + chunk / 8 * TILE::block_size;

#pragma unroll
        for (int i = 0; i < count; i++) {
            u32 r_chunk[4];

            r.of[i].take(r_chunk);
            cut(r_chunk, r.left);
            st_shared_v4_u32(s_block + swizzled_offset(row + i * row_step, chunk % 8), r_chunk);
        }
    }
};

/* The loading group's walk, as loader (load/tma.cuh). */
struct realigner {
    typedef realigned_operand<tile_a> operand_a;
    typedef realigned_operand<tile_b> operand_b;

    struct k_tile {
        operand_a::chunks a;
        operand_b::chunks b;
    };

    job_feed work;
    u32 s_base, thread;
    ring_position at;
    operand_a a;
    operand_b b;
    int k_tiles; /* of the unit that are left */

    DEVICE
    realigner(const gemmd_tensor_feed &feed, const cta_place &place, u32 in_s_base, u32 in_thread)
        : work(feed, place.walker, place.walkers), s_base(in_s_base), thread(in_thread), k_tiles(0)
    {
    }

    DEVICE void open(const raster::place &unit)
    {
        const gemmd_job &job = work.job();

        a = operand_a(job.a + (u64)(unit.item * job.stride_a * 2), job.lda, (int)unit.row, job.m,
                      job.k, thread);
        b = operand_b(job.b + (u64)(unit.item * job.stride_b * 2), job.ldb, (int)unit.col, job.n,
                      job.k, thread);
        k_tiles = k_tiles_of(job);
    }

    DEVICE bool regs_from_gmem(k_tile &r)
    {
        raster::place unit;

        while (k_tiles == 0) {
            if (!work.take(unit))
                return false;
            open(unit);
        }
        a.regs_from_gmem(r.a);
        b.regs_from_gmem(r.b);
        k_tiles--;
        return true;
    }

    DEVICE void smem_from_regs(const k_tile &r)
    {
        wait_parity(smem::empty_barrier(s_base, at.slot), at.parity ^ 1);
        a.smem_from_regs(smem::a_of_slot(s_base, at.slot), r.a);
        b.smem_from_regs(smem::b_of_slot(s_base, at.slot), r.b);
        fence_proxy_async_shared_cta();
        bar_warp_sync(0xffffffffu);
        if (thread % 32 == 0)
            mbarrier_arrive(smem::full_barrier(s_base, at.slot));
        at.advance();
    }

    DEVICE void run()
    {
        k_tile r[2];

        if (!regs_from_gmem(r[0]))
            return;
#pragma unroll 1
        for (;;) {
            bool has_more = regs_from_gmem(r[1]);

            smem_from_regs(r[0]);
            if (!has_more)
                return;
            has_more = regs_from_gmem(r[0]);
            smem_from_regs(r[1]);
            if (!has_more)
                return;
        }
    }
};
