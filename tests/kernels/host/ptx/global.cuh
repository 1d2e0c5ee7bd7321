#pragma once

#include "ptx/target.cuh"

inline void prefetch_global_l2(u64)
{
}

inline u8 ld_global_u8(u64 g_address)
{
    return host::global_load<u8>(g_address);
}

inline u16 ld_global_u16(u64 g_address)
{
    return host::global_load<u16>(g_address);
}

inline u32 ld_global_u32(u64 g_address)
{
    return host::global_load<u32>(g_address);
}

inline u64 ld_global_u64(u64 g_address)
{
    return host::global_load<u64>(g_address);
}

inline void ld_global_v4_u32(u32 (&d)[4], u64 g_address)
{
    memcpy(d, host::global_source(g_address, 16), 16);
}

inline float ld_global_f32(u64 g_address)
{
    return host::global_load<float>(g_address);
}

inline void ld_global_v4_f32(float (&d)[4], u64 g_address)
{
    memcpy(d, host::global_source(g_address, 16), 16);
}

inline void
st_global_hint_v4_f32(u64 g_address, float b0, float b1, float b2, float b3, u64)
{
    float b[4] = {b0, b1, b2, b3};

    memcpy(host::global(g_address, 16), b, 16);
}

inline void st_global_v4_f32(u64 g_address, float b0, float b1, float b2, float b3)
{
    float b[4] = {b0, b1, b2, b3};

    memcpy(host::global(g_address, 16), b, 16);
}

/* Clusters run one after the other, in one OS thread. */
inline u32 atom_add_acq_rel_gpu_u32(u64 g_address, u32 b)
{
    u32 before = host::global_load<u32>(g_address);

    host::global_store(g_address, before + b);
    return before;
}

inline void red_add_relaxed_gpu_u32(u64 g_address, u32 b)
{
    host::global_store(g_address, host::global_load<u32>(g_address) + b);
}

inline u32 ld_acquire_gpu_u32(u64 g_address)
{
    return host::global_load<u32>(g_address);
}

inline void st_global_u16(u64 g_address, u16 b)
{
    host::global_store(g_address, b);
}

inline void st_global_u32(u64 g_address, u32 b)
{
    host::global_store(g_address, b);
}

inline void st_global_u64(u64 g_address, u64 b)
{
    host::global_store(g_address, b);
}

inline void st_global_v2_u32(u64 g_address, u32 b0, u32 b1)
{
    u32 b[2] = {b0, b1};

    memcpy(host::global(g_address, 8), b, 8);
}

inline void st_global_cs_v4_u32_if(bool is_wanted, u64 g_address, const u32 (&b)[4])
{
    if (is_wanted)
        memcpy(host::global(g_address, 16), b, 16);
}

inline void st_global_v4_u32(u64 g_address, const u32 (&b)[4])
{
    memcpy(host::global(g_address, 16), b, 16);
}

/* Only stamps are stored so, in memory that no other grid knows: in turn or not. */
inline void st_global_v4_u32_if(bool is_wanted, u64 g_address, const u32 (&b)[4])
{
    if (is_wanted)
        memcpy((void *)g_address, b, 16);
}
