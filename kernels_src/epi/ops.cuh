/*
 * What happens to an accumulator on its way out: D = alpha * accumulator + beta * C.
 *
 * The BLAS rules: with beta = 0 C is not read (it may be NaN, or absent); with alpha = 0 or k = 0
 * A and B are not read, and alpha, which may then be anything, does not count.
 */
#pragma once

#include "abi/job.h"
#include "base/number.cuh"

struct epilogue {
    scalar alpha, beta;
    bool reads_c;

    DEVICE epilogue(const gemmd_job &job)
        : alpha(scalar_from_double(job.k > 0 ? job.alpha : 0)), beta(scalar_from_double(job.beta)),
          reads_c(job.beta != 0)
    {
    }

    DEVICE scalar apply(scalar r_accum, scalar r_c) const
    {
        return reads_c ? apply_c(r_accum, r_c) : alpha * r_accum;
    }

    DEVICE scalar apply_c(scalar r_accum, scalar r_c) const
    {
        return alpha * r_accum + beta * r_c;
    }
};
