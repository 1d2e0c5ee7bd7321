/*
 * Names every kernel file may assume: fixed-width integers and what marks device code. NVRTC has no
 * <stdint.h>, and no file of CUDA's is included anywhere in this tree.
 */
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#define DEVICE __device__ __forceinline__

DEVICE constexpr int min_of(int a, int b)
{
    return a < b ? a : b;
}

DEVICE constexpr int max_of(int a, int b)
{
    return a > b ? a : b;
}

/* What is left of a 64-bit extent, seen through a window of `window` elements: 0 to window. */
DEVICE int extent_in(i64 left, int window)
{
    return left <= 0 ? 0 : left < window ? (int)left : window;
}
