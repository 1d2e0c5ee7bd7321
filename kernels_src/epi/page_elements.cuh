/*
 * Pages of split configurations to D where rows of D or C start anywhere: by elements, sixteen
 * lanes beside each other in a row.
 */
#pragma once

#include "epi/ops.cuh"
#include "ptx/shared.cuh"
#include "tile/smem_hopper.cuh"

struct page_elements {
    const epilogue &op;
    u32 lane;

    DEVICE static bool are_rows_aligned(const epilogue &op)
    {
        const gemmd_job &job = op.job;
        u64 d = job.d | (u64)((job.ldd | job.stride_d) * cfg::output_size);
        u64 c = job.c | (u64)((job.ldc | job.stride_c) * cfg::output_size);

        return ((d | (op.reads_c ? c : 0)) & 15) == 0;
    }

    /* One after the other: what is done to an element is long. s_first, row, col: of the lane's
     * first one. */
    DEVICE void gmem_from_any(u32 s_first, i64 row, i64 col) const
    {
        const gemmd_job &job = op.job;

#pragma unroll 1
        for (int i = 0; i < 16; i += 2, row += 2) {
            float r = ld_shared_f32(s_first + i * smem::page_pitch);

            if (row >= job.m || col >= job.n)
                return;
            op.gmem_from_accum(r, row, col);
        }
    }

    DEVICE void gmem_from_plain(u32 s_first, i64 row, i64 col) const
    {
        const gemmd_job &job = op.job;
        int rows_left = col < job.n ? extent_in(job.m - row, 16) : 0;
        u64 g_d = element_address(job.d, op.item * job.stride_d + row * job.ldd + col);
        u64 g_step = element_address(0, 2 * job.ldd);
        float r[8];

#pragma unroll
        for (int i = 0; i < 8; i++)
            r[i] = ld_shared_f32(s_first + i * 2 * smem::page_pitch);
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (i * 2 < rows_left)
                gmem_from_reg(g_d + i * g_step, op.plain(r[i]));
    }

    /* row, col: of the page's first element in D. */
    DEVICE void gmem_from_page(u32 s_page, i64 row, i64 col) const
    {
        u32 s_first = s_page + lane / 16 * smem::page_pitch + lane % 16 * 4;

        if (op.is_plain())
            gmem_from_plain(s_first, row + lane / 16, col + lane % 16);
        else
            gmem_from_any(s_first, row + lane / 16, col + lane % 16);
    }
};
