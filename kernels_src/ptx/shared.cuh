/*
 * Ordinary shared-memory loads and stores, and the address of a variable in the shared window.
 * Volatile and with a memory clobber: the compiler must not move them over barriers it cannot see
 * through.
 */
#pragma once

#include "ptx/target.cuh"

DEVICE u32 cvta_to_shared(const void *pointer)
{
    u64 address;

    asm("cvta.to.shared.u64 %0, %1;" : "=l"(address) : "l"(pointer));
    return (u32)address;
}

DEVICE u16 ld_shared_u16(u32 s_address)
{
    u16 d;

    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(d) : "r"(s_address) : "memory");
    return d;
}

DEVICE u32 ld_shared_u32(u32 s_address)
{
    u32 d;

    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(d) : "r"(s_address) : "memory");
    return d;
}

DEVICE u64 ld_shared_u64(u32 s_address)
{
    u64 d;

    asm volatile("ld.shared.u64 %0, [%1];" : "=l"(d) : "r"(s_address) : "memory");
    return d;
}

DEVICE float ld_shared_f32(u32 s_address)
{
    float d;

    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(d) : "r"(s_address) : "memory");
    return d;
}

DEVICE double ld_shared_f64(u32 s_address)
{
    double d;

    asm volatile("ld.shared.f64 %0, [%1];" : "=d"(d) : "r"(s_address) : "memory");
    return d;
}

DEVICE void ld_shared_v2_f32(float (&d)[2], u32 s_address)
{
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                 : "=f"(d[0]), "=f"(d[1])
                 : "r"(s_address)
                 : "memory");
}

DEVICE void ld_shared_v4_u32(u32 (&d)[4], u32 s_address)
{
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                 : "r"(s_address)
                 : "memory");
}

DEVICE void ld_shared_v4_f32(float (&d)[4], u32 s_address)
{
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
                 : "r"(s_address)
                 : "memory");
}

DEVICE void st_shared_u16(u32 s_address, u16 b)
{
    asm volatile("st.shared.u16 [%0], %1;" ::"r"(s_address), "h"(b) : "memory");
}

DEVICE void st_shared_f32(u32 s_address, float b)
{
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(s_address), "f"(b) : "memory");
}

DEVICE void st_shared_u32(u32 s_address, u32 b)
{
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(s_address), "r"(b) : "memory");
}

DEVICE void st_shared_f64(u32 s_address, double b)
{
    asm volatile("st.shared.f64 [%0], %1;" ::"r"(s_address), "d"(b) : "memory");
}

DEVICE void st_shared_v2_f32(u32 s_address, float b0, float b1)
{
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(s_address), "f"(b0), "f"(b1) : "memory");
}

DEVICE void st_shared_v2_u32(u32 s_address, u32 b0, u32 b1)
{
    asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(s_address), "r"(b0), "r"(b1) : "memory");
}

DEVICE void st_shared_v2_f64(u32 s_address, double b0, double b1)
{
    asm volatile("st.shared.v2.f64 [%0], {%1, %2};" ::"r"(s_address), "d"(b0), "d"(b1) : "memory");
}

DEVICE void st_shared_v4_f32(u32 s_address, const float *b)
{
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(s_address), "f"(b[0]), "f"(b[1]),
                 "f"(b[2]), "f"(b[3])
                 : "memory");
}

DEVICE void st_shared_v4_u32(u32 s_address, const u32 (&b)[4])
{
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(s_address), "r"(b[0]), "r"(b[1]),
                 "r"(b[2]), "r"(b[3])
                 : "memory");
}
