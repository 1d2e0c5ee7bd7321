/*
 * A group's tile: the accumulators of four warps, and the products that feed them from a slot.
 */
#pragma once

#include "ptx/wgmma.cuh"
#include "tile/desc_wgmma.cuh"
#include "tile/smem_hopper.cuh"

struct nothing_beside {
    DEVICE void operator()(int) const
    {
    }
};

struct group_tile {
    static constexpr int blocks = cfg::group_m / block_span;
    static constexpr int slices = cfg::tile_k / 16;

    typedef wgmma_operand<tile_a> operand_a;
    typedef wgmma_operand<tile_b> operand_b;

    static constexpr u32 b_behind = operand_b::low_word(tile_a::size) - operand_a::low_word(0);

    float accum[blocks][cfg::tile_n / 2];

    /* The fragment of 16 rows x 8 columns of this warp with this number, columns first. */
    DEVICE const float *chunk(int number) const
    {
        constexpr int in_block = cfg::tile_n / 8;

        return accum[number / in_block] + number % in_block * 4;
    }

    DEVICE void clear()
    {
#pragma unroll
        for (int block = 0; block < blocks; block++)
#pragma unroll
            for (int i = 0; i < cfg::tile_n / 2; i++)
                accum[block][i] = 0;
    }

    /* The low word of a descriptor of the slot's A, from which all others of the slot follow. */
    DEVICE static u32 slot_word(u32 s_base, int slot)
    {
        return operand_a::low_word(smem::a_of_slot(s_base, slot));
    }

    DEVICE void fence()
    {
#pragma unroll
        for (int block = 0; block < blocks; block++)
            accumulators_fence(accum[block]);
    }

    template <int COUNT>
    DEVICE static void multiply(float (&d)[COUNT], u64 desc_a, u64 desc_b, u32 scale_d)
    {
        if constexpr (cfg::input == cfg::bf16)
            wgmma_m64k16_f32_bf16<operand_a::tnsp, operand_b::tnsp>(d, desc_a, desc_b, scale_d);
        else
            wgmma_m64k16_f32_f16<operand_a::tnsp, operand_b::tnsp>(d, desc_a, desc_b, scale_d);
    }

    /* Products of one K tile, as one group of wgmma, of the tile's first COLS columns. first_block:
     * of the group's rows in the tile. keeps: 0 when the accumulators hold nothing yet. beside():
     * what else there is to do, once the products of a slice have been issued; the others are
     * accepted as these end, so there is time. Without branches, or ptxas splits the products. No
     * fence here: between products sums are nobody's, and for the compiler a fence is as much work
     * as a product. */
    template <int COLS, typename BESIDE>
    DEVICE void accum_from_smem(u32 word, int first_block, u32 keeps, const BESIDE &beside)
    {
        u32 low_a = word + first_block * operand_a::step_block;
        u32 low_b = word + b_behind;

        wgmma_fence();
#pragma unroll
        for (int slice = 0; slice < slices; slice++) {
#pragma unroll
            for (int block = 0; block < blocks; block++)
                multiply((float(&)[COLS / 2]) accum[block],
                         operand_a::desc(low_a + operand_a::step_k(slice) +
                                         block * operand_a::step_block),
                         operand_b::desc(low_b + operand_b::step_k(slice)), slice == 0 ? keeps : 1);
            beside(slice);
        }
        wgmma_commit_group();
    }

    template <int COLS> DEVICE void accum_from_smem(u32 word, int first_block, u32 keeps)
    {
        accum_from_smem<COLS>(word, first_block, keeps, nothing_beside());
    }
};
