#pragma once

#include "ptx/target.cuh"

/* The order of all that asks: fibers take turns in one OS thread. */
inline u32 clock_lo()
{
    static u32 asked;

    return ++asked;
}

inline u64 globaltimer()
{
    return clock_lo();
}

inline u32 smid()
{
    return machine::now().cta.x;
}
