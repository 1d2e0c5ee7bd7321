/*
 * The hopper family for inputs whose rows start anywhere: the same kernel, and `repack`, which is
 * launched before it and copies such inputs to rows that tensor copies can read.
 */
#include "entry/gemm_hopper.cu"
#include "load/repack.cuh"

extern "C" __global__ void __launch_bounds__(repacking::threads, repacking::ctas_per_multiprocessor)
    repack(const __grid_constant__ gemmd_repack what)
{
    griddepcontrol_wait(); /* for the inputs, and until nobody reads the copies of before */
    griddepcontrol_launch_dependents();
    for (int i = 0; i < GEMMD_REPACK_OPERANDS; i++)
        if (what.operand[i].rows > 0)
            repacking::copier(what.operand[i]).copy(blockIdx.x, gridDim.x, threadIdx.x);
}
