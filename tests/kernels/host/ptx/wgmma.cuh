#pragma once

#include "ptx/cvt.cuh"
#include "ptx/target.cuh"
#include "ptx/tma.cuh"

/* One operand by its descriptor, in the 128-byte swizzle. */
struct host_operand {
    u32 start, leading, stride;
    bool is_transposed;

    host_operand(u64 desc, bool in_is_transposed)
        : start((u32)(desc & 0x3fff) << 4), leading((u32)(desc >> 16 & 0x3fff) << 4),
          stride((u32)(desc >> 32 & 0x3fff) << 4), is_transposed(in_is_transposed)
    {
        if (desc >> 62 != 1 || (desc >> 49 & 7) != 0) {
            fprintf(stderr, "descriptor %llx\n", desc);
            abort();
        }
    }

    /* Index along m or n, and along K. */
    u16 at(u32 span, u32 k) const
    {
        u32 s_address = is_transposed ? start + span / 64 * leading + k / 8 * stride + k % 8 * 128 +
                                            span % 64 * 2
                                      : start + span / 8 * stride + span % 8 * 128 + k * 2;

        return host::shared_load<u16>(host_swizzled(s_address) | machine::now().rank
                                                                     << host::rank_shift);
    }
};

/* This thread's part of the product; other threads of the group compute theirs. */
template <int COUNT, typename F>
inline void host_products(float (&d)[COUNT], host_operand a, host_operand b, u32 scale_d, F number)
{
    u32 warp = machine::now().thread.x / 32 % 4, lane = machine::now().thread.x % 32;

    for (u32 index = 0; index < COUNT && scale_d == 0; index++)
        d[index] = 0;
    for (u32 k = 0; k < 16; k++) {
        float r_a[2];

        for (u32 i = 0; i < 2; i++)
            r_a[i] = number(a.at(warp * 16 + i * 8 + lane / 4, k));
        for (u32 index = 0; index < COUNT; index += 4)
            for (u32 e = 0; e < 2; e++) {
                float r_b = number(b.at(index / 4 * 8 + lane % 4 * 2 + e, k));

                for (u32 i = 0; i < 2; i++)
                    d[index + i * 2 + e] += r_a[i] * r_b;
            }
    }
}

template <int COUNT, typename F>
inline void
host_wgmma(float (&d)[COUNT], const host_operand &a, const host_operand &b, u32 scale_d, F number)
{
    if (machine::self.copies_late)
        machine::now().products.open.push_back(
            [&d, a, b, scale_d, number] { host_products(d, a, b, scale_d, number); });
    else
        host_products(d, a, b, scale_d, number);
}

template <int TNSP_A, int TNSP_B, int COUNT>
inline void wgmma_m64k16_f32_bf16(float (&d)[COUNT], u64 desc_a, u64 desc_b, u32 scale_d)
{
    host_wgmma(d, host_operand(desc_a, TNSP_A), host_operand(desc_b, TNSP_B), scale_d,
               [](u16 bits) { return __uint_as_float((u32)bits << 16); });
}

template <int TNSP_A, int TNSP_B, int COUNT>
inline void wgmma_m64k16_f32_f16(float (&d)[COUNT], u64 desc_a, u64 desc_b, u32 scale_d)
{
    host_wgmma(d, host_operand(desc_a, TNSP_A), host_operand(desc_b, TNSP_B), scale_d,
               [](u16 bits) { return cvt_f32_f16(bits); });
}

template <int COUNT> inline void accumulators_fence(float (&)[COUNT])
{
}

/* .sync.aligned: no lane goes on alone. */
inline void wgmma_fence()
{
    machine::meet(machine::now_warp().meet, 32);
}

inline void wgmma_commit_group()
{
    machine::meet(machine::now_warp().meet, 32);
    machine::now().products.commit();
}

template <int N> inline void wgmma_wait_group()
{
    machine::now().products.wait(N);
    machine::meet(machine::now_warp().meet, 32);
}
