/*
 * Split configurations for a long K and few tiles: every cluster leaves its part of the sum in the
 * workspace, and the kernel `sum`, launched behind this one, adds the parts: all multiprocessors
 * read them, and nobody waits within a kernel.
 *
 * Such a product is a stream of its operands, and takes as long as memory does, or the power for
 * it. So the ring has all of shared memory: bytes under way are what keeps memory busy.
 */
#include "entry/gemm_hopper_split.cu"
#include "epi/part_sum.cuh"

/* It begins beside the product, and lets the next launch begin at once: that waits for the end of
 * this one, which waits for the product's. The product lets this one begin when the sum before has
 * ended, so there are no more than two products at any time. */
extern "C" __global__ void __launch_bounds__(GEMMD_SUM_THREADS, 2)
    sum(const __grid_constant__ gemmd_tensor_feed feed)
{
    griddepcontrol_launch_dependents();
    part_sum all(feed.jobs[0], cvta_to_shared(dynamic_shared), threadIdx.x);
    griddepcontrol_wait();
    all.run(blockIdx.x, gridDim.x);
}
