/*
 * What only sm_90a has (wgmma, setmaxnreg), and what came with it (TMA, mbarrier, clusters).
 */
#pragma once

#include "ptx/target.cuh"

#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
#    error "the hopper family is for sm_90a alone"
#endif
