/*
 * What happens to accumulators on their way out: D = act(alpha * accumulator + beta * C + bias).
 *
 * The BLAS rules: with beta = 0 C is not read (it may be NaN, or absent); with alpha = 0 or k = 0
 * A and B are not read, and alpha, which may then be anything, does not count. Beta, bias and
 * activation always do.
 *
 * Two ways, the same for all elements of a job: plain() when is_plain(), which is what most
 * products are and what a mover may have a path of its own for, else apply().
 */
#pragma once

#include "abi/job.h"
#include "epi/activation.cuh"
#include "epi/element.cuh"

struct epilogue {
    static constexpr u32 with_bias = GEMMD_JOB_BIAS_PER_ROW | GEMMD_JOB_BIAS_PER_COLUMN;

    scalar alpha, beta;
    bool reads_c; /* apply() wants C */
    const gemmd_job &job;
    i64 item;

    DEVICE epilogue(const gemmd_job &in_job, i64 in_item)
        : alpha(scalar_from_double(in_job.k > 0 ? in_job.alpha : 0)),
          beta(scalar_from_double(in_job.beta)), reads_c(in_job.beta != 0), job(in_job),
          item(in_item)
    {
    }

    /* Neither C nor bias nor activation. */
    DEVICE bool is_plain() const
    {
        return !reads_c && !(job.flags & with_bias) && job.activation == activation_none;
    }

    DEVICE scalar plain(scalar r_accum) const
    {
        return alpha * r_accum;
    }

    DEVICE scalar apply_c(scalar r_accum, scalar r_c) const
    {
        return alpha * r_accum + beta * r_c;
    }

    /*
     * N neighbours of one row of D, from accumulators to what D gets, in place. `row` and `col` are
     * the first one's in its item; they may lie outside of D, where the result has no meaning. r_c:
     * the same elements of C; not looked at unless reads_c.
     */
    template <int N>
    DEVICE void apply(scalar (&r)[N], const scalar (&r_c)[N], i64 row, i64 col) const
    {
#pragma unroll
        for (int i = 0; i < N; i++)
            r[i] = reads_c ? apply_c(r[i], r_c[i]) : plain(r[i]);
        if constexpr (!cfg::finishes)
            return;
        if (job.flags & with_bias)
            add_bias(r, row, col);
        activation<scalar>(job.activation).apply(r);
    }

    /* One element that D has, from its accumulator. */
    DEVICE void gmem_from_accum(scalar r_accum, i64 row, i64 col) const
    {
        scalar r[1] = {r_accum}, r_c[1];

        if (reads_c)
            r_c[0] = reg_from_gmem(
                element_address(job.c, item * job.stride_c + row * job.ldc + col));
        apply(r, r_c, row, col);
        gmem_from_reg(element_address(job.d, item * job.stride_d + row * job.ldd + col), r[0]);
    }

    template <int N> DEVICE void add_bias(scalar (&r)[N], i64 row, i64 col) const
    {
        bool is_per_row = job.flags & GEMMD_JOB_BIAS_PER_ROW;
        scalar r_row = is_per_row ? bias_at(row, job.m) : 0;

#pragma unroll
        for (int i = 0; i < N; i++)
            r[i] += is_per_row ? r_row : bias_at(col + i, job.n);
    }

    DEVICE scalar bias_at(i64 index, i64 length) const
    {
        i64 in_bias = item * job.stride_bias + index;

        return index < length ? reg_from_gmem(element_address(job.bias, in_bias)) : (scalar)0;
    }
};
