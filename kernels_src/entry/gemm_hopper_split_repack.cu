/* Split configurations for inputs whose rows start anywhere: the same kernel, and one before it. */
#include "entry/gemm_hopper_split.cu"
#include "entry/repack_kernel.cuh"
