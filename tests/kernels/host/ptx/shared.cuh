#pragma once

#include "ptx/target.cuh"

inline u32 cvta_to_shared(const void *pointer)
{
    return machine::now().rank << host::rank_shift |
           (host::shared_base + (u32)((const u8 *)pointer - dynamic_shared));
}

inline u16 ld_shared_u16(u32 s_address)
{
    return host::shared_load<u16>(s_address);
}

inline u32 ld_shared_u32(u32 s_address)
{
    return host::shared_load<u32>(s_address);
}

inline u64 ld_shared_u64(u32 s_address)
{
    return host::shared_load<u64>(s_address);
}

inline float ld_shared_f32(u32 s_address)
{
    return host::shared_load<float>(s_address);
}

inline double ld_shared_f64(u32 s_address)
{
    return host::shared_load<double>(s_address);
}

inline void ld_shared_v2_f32(float (&d)[2], u32 s_address)
{
    memcpy(d, host::shared(s_address, sizeof d), sizeof d);
}

template <typename T> inline void ld_shared_v4(T (&d)[4], u32 s_address)
{
    memcpy(d, host::shared(s_address, 16), 16);
}

inline void ld_shared_v4_u32(u32 (&d)[4], u32 s_address)
{
    ld_shared_v4(d, s_address);
}

inline void ld_shared_v4_f32(float (&d)[4], u32 s_address)
{
    ld_shared_v4(d, s_address);
}

inline void st_shared_f32(u32 s_address, float b)
{
    host::shared_store(s_address, b);
}

inline void st_shared_u16(u32 s_address, u16 b)
{
    host::shared_store(s_address, b);
}

inline void st_shared_u32(u32 s_address, u32 b)
{
    host::shared_store(s_address, b);
}

inline void st_shared_f64(u32 s_address, double b)
{
    host::shared_store(s_address, b);
}

template <typename T> inline void st_shared_v2(u32 s_address, T b0, T b1)
{
    T both[2] = {b0, b1};

    memcpy(host::shared(s_address, sizeof both), both, sizeof both);
}

inline void st_shared_v2_f32(u32 s_address, float b0, float b1)
{
    st_shared_v2(s_address, b0, b1);
}

inline void st_shared_v2_u32(u32 s_address, u32 b0, u32 b1)
{
    st_shared_v2(s_address, b0, b1);
}

inline void st_shared_v2_f64(u32 s_address, double b0, double b1)
{
    st_shared_v2(s_address, b0, b1);
}

inline void st_shared_v4_f32(u32 s_address, const float *b)
{
    memcpy(host::shared(s_address, 16), b, 16);
}

inline void st_shared_v4_u32(u32 s_address, const u32 (&b)[4])
{
    memcpy(host::shared(s_address, 16), b, 16);
}
