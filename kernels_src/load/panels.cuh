/*
 * A few K of both operands, by elements, to the panels of tile/panels.cuh: from global memory to
 * registers while the panels before are multiplied, from there to shared memory when they are free.
 * A thread has a column of B, if there are as many, and some K of a row or all of several rows of A;
 * columns of which there are more than threads are shared by K.
 */
#pragma once

#include "base/number.cuh"
#include "ptx/global.cuh"
#include "ptx/shared.cuh"
#include "sched/raster.cuh"
#include "tile/panels.cuh"

struct panel_loader {
    typedef number<cfg::input> in;

    static constexpr int a_step = max_of(cfg::threads / cfg::tile_m, 1); /* K of A at once */
    static constexpr int a_rows = max_of(cfg::tile_m / cfg::threads, 1); /* of a thread */
    static constexpr int a_count = panels::depth / a_step;
    static constexpr bool has_more_columns = panels::columns > cfg::threads;
    static constexpr u32 more = has_more_columns ? panels::columns - cfg::threads : 1;

    static_assert(a_count * a_step == panels::depth && a_rows * cfg::threads == a_step * cfg::tile_m,
                  "threads fetch alike");

    const gemmd_job &job;
    u64 g_a, g_b, g_more;
    u32 thread;
    bool has_column, has_more;
    i64 rows_left; /* from the thread's first one on */
    int left;      /* of K */
    u16 r_a[a_rows][a_count], r_b[panels::depth], r_more;

    DEVICE panel_loader(const gemmd_job &of, const raster::place &at, u32 in_thread)
        : job(of), thread(in_thread), left(of.alpha != 0 ? (int)of.k : 0)
    {
        i64 row = at.row + a_row(), first = at.col - panels::chunk, column = first + thread;
        i64 last = first + last_column();
        u64 g_panel = job.b + (u64)(at.item * job.stride_b * 2);
        i64 between = cfg::trans_b ? job.ldb : 1; /* columns, elements */

        g_a = job.a +
              (u64)((at.item * job.stride_a + row * (cfg::trans_a ? 1 : job.lda)) * 2) +
              a_k() * step_a();
        g_b = g_panel + (u64)(column * between * 2);
        g_more = g_panel + (u64)(last * between * 2) + last_k() * step_b();
        rows_left = job.m - row;
        has_column = thread < panels::columns && column >= 0 && column < job.n;
        has_more = has_more_columns && thread < more * panels::depth && last < job.n;
    }

    /* Bytes along K. */
    DEVICE u64 step_a() const
    {
        return (u64)(cfg::trans_a ? job.lda : 1) * 2;
    }

    DEVICE u64 step_b() const
    {
        return (u64)(cfg::trans_b ? 1 : job.ldb) * 2;
    }

    /* The thread's first one; the others follow as many on as there are threads. */
    DEVICE u32 a_row() const
    {
        return thread % cfg::tile_m;
    }

    DEVICE u64 step_rows() const
    {
        return (u64)((cfg::trans_a ? 1 : job.lda) * cfg::threads * 2);
    }

    DEVICE u32 a_k() const
    {
        return thread / cfg::tile_m;
    }

    /* Of those beyond the threads' own. */
    DEVICE u32 last_column() const
    {
        return cfg::threads + thread % more;
    }

    DEVICE u32 last_k() const
    {
        return thread / more;
    }

    /* Of the panels that come next; 0: there are none. */
    DEVICE int depth() const
    {
        return left <= 0 ? 0 : min_of(left, panels::depth);
    }

    template <int COUNT>
    DEVICE static void regs_from_line(u16 (&r)[COUNT], u64 g_first, u64 step, int count)
    {
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            r[i] = 0;
            if (i < count)
                r[i] = ld_global_u16(g_first);
            g_first += step;
        }
    }

    DEVICE void regs_from_gmem()
    {
        int count = depth();

#pragma unroll
        for (int i = 0; i < a_rows; i++)
            regs_from_line(r_a[i], g_a + i * step_rows(), a_step * step_a(),
                           rows_left > i * cfg::threads
                               ? (count - (int)a_k() + a_step - 1) / a_step
                               : 0);
        regs_from_line(r_b, g_b, step_b(), has_column ? count : 0);
        r_more = 0;
        if (has_more && (int)last_k() < count)
            r_more = ld_global_u16(g_more);
    }

    /* And on to the next panels. */
    DEVICE void smem_from_regs(u32 s_base)
    {
        int count = depth();

#pragma unroll
        for (int row = 0; row < a_rows; row++)
#pragma unroll
            for (int i = 0; i < a_count; i++)
                st_shared_f32(panels::a_of(s_base, a_k() + i * a_step, a_row() + row * cfg::threads),
                              in::from_bits(r_a[row][i]));
#pragma unroll
        for (int i = 0; i < panels::depth; i++)
            if (i < count && (has_more_columns || thread < panels::columns))
                st_shared_f32(panels::b_of(s_base, i, thread), in::from_bits(r_b[i]));
        if (has_more_columns && thread < more * panels::depth)
            st_shared_f32(panels::b_of(s_base, last_k(), last_column()), in::from_bits(r_more));
        g_a += panels::depth * step_a();
        g_b += panels::depth * step_b();
        g_more += panels::depth * step_b();
        left -= panels::depth;
    }
};
