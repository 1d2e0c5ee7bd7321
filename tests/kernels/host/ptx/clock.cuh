#pragma once

#include "ptx/target.cuh"

/* The order of all that asks: fibers take turns in one OS thread. */
inline u64 sm_clock64()
{
    static u64 asked;

    return ++asked;
}

inline u64 globaltimer()
{
    return sm_clock64();
}

inline u32 smid()
{
    return machine::now().cta.x;
}
