/* The hopper family for inputs whose rows start anywhere: the same kernel, and one before it. */
#include "entry/gemm_hopper.cu"
#include "entry/repack_kernel.cuh"
