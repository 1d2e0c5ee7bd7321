/*
 * The hopper family's kernel for few elements of D: each is a dot product of a row of op(A) and a
 * column of op(B), by CUDA cores. Rows start anywhere. sm_90a.
 *
 * Neither tensor copies nor wgmma: what these need until the first product takes longer than such a
 * product. A CTA takes as many elements at once as its threads allow, an element being shared by
 * gemmd_dot_threads(). There is no other role; all of a launch that needs no memory of the grid
 * before it comes before griddepcontrol_wait().
 */
#include "abi/job.h"
#include "epi/ops.cuh"
#include "mma/dot.cuh"
#include "sched/element_walk.cuh"
#include "sched/turn.cuh"

extern __shared__ __align__(128) u8 dynamic_shared[];

/* What the element's threads have summed up, each a part of K. */
DEVICE float part_of_element(const element_walk &walk)
{
    const gemmd_job &job = walk.job;
    const element_walk::place &at = walk.at;
    u64 g_a = job.a + (u64)((at.item * job.stride_a + at.row * (cfg::trans_a ? 1 : job.lda)) * 2);
    u64 g_b = job.b + (u64)((at.item * job.stride_b + at.col * (cfg::trans_b ? job.ldb : 1)) * 2);
    int k = job.alpha != 0 ? (int)job.k : 0;

    if (!cfg::trans_a && cfg::trans_b && k > dot::elements_at_once)
        return dot::row_pair{g_a, g_b, k}.sum_of_chunks(walk.part, walk.together);
    return dot::sum_of_elements(g_a, (u64)(cfg::trans_a ? job.lda : 1) * 2, g_b,
                                (u64)(cfg::trans_b ? 1 : job.ldb) * 2, k, walk.part,
                                walk.together);
}

DEVICE void gmem_from_sum(u64 g_d, const epilogue &op, const element_walk::place &at, float r_sum)
{
    float r[1] = {r_sum}, r_c[1];

    if (op.reads_c)
        r_c[0] = reg_from_gmem(element_address(
            op.job.c, at.item * op.job.stride_c + at.row * op.job.ldc + at.col));
    op.apply(r, r_c, at.row, at.col);
    gmem_from_reg(g_d, r[0]);
}

DEVICE void compute(const gemmd_job &job, u32 s_partial)
{
    element_walk walk(job, blockIdx.x, gridDim.x, threadIdx.x);

    for (; walk.has_any(); walk.advance()) {
        bool is_here = walk.find();
        float r_sum = is_here ? part_of_element(walk) : 0;

        const element_walk::place &at = walk.at;
        epilogue op(job, at.item);
        u64 g_d = element_address(job.d, at.item * job.stride_d + at.row * job.ldd + at.col);
        bool is_plain = op.is_plain();

        r_sum = walk.sum_of_parts(r_sum, s_partial);
        griddepcontrol_wait(); /* the grid before may read D, or write C */
        griddepcontrol_launch_dependents();
        if (!is_here || walk.part != 0)
            continue;
        if (is_plain)
            gmem_from_reg(g_d, op.plain(r_sum));
        else
            gmem_from_sum(g_d, op, at, r_sum);
    }
}

extern "C" __global__ void __launch_bounds__(cfg::threads, cfg::ctas_per_multiprocessor)
    gemm(const __grid_constant__ gemmd_tensor_feed feed)
{
    u32 s_partial = cvta_to_shared(dynamic_shared);

    lead_on(feed.jobs[0]);
    if (!are_settled(feed.jobs[0]))
        griddepcontrol_wait();
    for (u32 i = 0; i < feed.job_count; i++)
        compute(feed.jobs[i], s_partial);
    take_turn(); /* those that had nothing to do */
}
