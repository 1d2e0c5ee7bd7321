/*
 * Every ptx/ header includes this: the portable family's floor.
 */
#pragma once

#include "base/prelude.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ < 800
#    if !defined(__CUDACC__) || defined(__CUDA_ARCH__) /* nvcc's host pass has no architecture */
#        error "cp.async, ldmatrix and mma.sync of these shapes need sm_80 or later"
#    endif
#endif
