/*
 * Ordinary global loads and stores by address. Never .nc: between two jobs of one resident launch
 * the data changes, and the acquire at a job's start reaches only coherent loads.
 */
#pragma once

#include "ptx/target.cuh"

/* The line of an address, to the L2, where it stays current whoever writes it. */
DEVICE void prefetch_global_l2(u64 g_address)
{
    asm volatile("prefetch.global.L2 [%0];" ::"l"(g_address) : "memory");
}

DEVICE u8 ld_global_u8(u64 g_address)
{
    u32 d;

    asm volatile("ld.global.u8 %0, [%1];" : "=r"(d) : "l"(g_address) : "memory");
    return (u8)d;
}

DEVICE u16 ld_global_u16(u64 g_address)
{
    u16 d;

    asm volatile("ld.global.u16 %0, [%1];" : "=h"(d) : "l"(g_address) : "memory");
    return d;
}

DEVICE u32 ld_global_u32(u64 g_address)
{
    u32 d;

    asm volatile("ld.global.u32 %0, [%1];" : "=r"(d) : "l"(g_address) : "memory");
    return d;
}

DEVICE u64 ld_global_u64(u64 g_address)
{
    u64 d;

    asm volatile("ld.global.u64 %0, [%1];" : "=l"(d) : "l"(g_address) : "memory");
    return d;
}

DEVICE void ld_global_v4_u32(u32 (&d)[4], u64 g_address)
{
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                 : "l"(g_address)
                 : "memory");
}

DEVICE void st_global_u16(u64 g_address, u16 b)
{
    asm volatile("st.global.u16 [%0], %1;" ::"l"(g_address), "h"(b) : "memory");
}

DEVICE void st_global_u32(u64 g_address, u32 b)
{
    asm volatile("st.global.u32 [%0], %1;" ::"l"(g_address), "r"(b) : "memory");
}

DEVICE void st_global_u64(u64 g_address, u64 b)
{
    asm volatile("st.global.u64 [%0], %1;" ::"l"(g_address), "l"(b) : "memory");
}

DEVICE void st_global_v2_u32(u64 g_address, u32 b0, u32 b1)
{
    asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(g_address), "r"(b0), "r"(b1) : "memory");
}

/* In lines that the L2 gives up before others. Where `is_wanted`, by a predicate: a branch for each
 * store of a tile is more work for the compiler than the store. */
DEVICE void st_global_cs_v4_u32_if(bool is_wanted, u64 g_address, const u32 (&b)[4])
{
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "setp.ne.u32 p, %0, 0;\n"
                 "@p st.global.cs.v4.u32 [%1], {%2, %3, %4, %5};\n"
                 "}" ::"r"((u32)is_wanted),
                 "l"(g_address), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3])
                 : "memory");
}

DEVICE float ld_global_f32(u64 g_address)
{
    float d;

    asm volatile("ld.global.f32 %0, [%1];" : "=f"(d) : "l"(g_address) : "memory");
    return d;
}

DEVICE void ld_global_v4_f32(float (&d)[4], u64 g_address)
{
    asm volatile("ld.global.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
                 : "l"(g_address)
                 : "memory");
}

DEVICE void st_global_v4_f32(u64 g_address, float b0, float b1, float b2, float b3)
{
    asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(g_address), "f"(b0), "f"(b1),
                 "f"(b2), "f"(b3)
                 : "memory");
}

/* `policy`: of the L2, by createpolicy. */
DEVICE void st_global_hint_v4_f32(u64 g_address, float b0, float b1, float b2, float b3, u64 policy)
{
    asm volatile("st.global.L2::cache_hint.v4.f32 [%0], {%1, %2, %3, %4}, %5;" ::"l"(g_address),
                 "f"(b0), "f"(b1), "f"(b2), "f"(b3), "l"(policy)
                 : "memory");
}

/* Acquires and releases at gpu scope; returns what was there. */
DEVICE u32 atom_add_acq_rel_gpu_u32(u64 g_address, u32 b)
{
    u32 d;

    asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], %2;"
                 : "=r"(d)
                 : "l"(g_address), "r"(b)
                 : "memory");
    return d;
}

DEVICE void red_add_relaxed_gpu_u32(u64 g_address, u32 b)
{
    asm volatile("red.add.relaxed.gpu.global.u32 [%0], %1;" ::"l"(g_address), "r"(b) : "memory");
}

DEVICE u32 ld_acquire_gpu_u32(u64 g_address)
{
    u32 d;

    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(d) : "l"(g_address) : "memory");
    return d;
}

DEVICE void st_global_v4_u32(u64 g_address, const u32 (&b)[4])
{
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(g_address), "r"(b[0]), "r"(b[1]),
                 "r"(b[2]), "r"(b[3])
                 : "memory");
}

/* Where `is_wanted`, by a predicate: no branch, which products under way would not outlive. */
DEVICE void st_global_v4_u32_if(bool is_wanted, u64 g_address, const u32 (&b)[4])
{
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "setp.ne.u32 p, %0, 0;\n"
                 "@p st.global.v4.u32 [%1], {%2, %3, %4, %5};\n"
                 "}" ::"r"((u32)is_wanted),
                 "l"(g_address), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3])
                 : "memory");
}
