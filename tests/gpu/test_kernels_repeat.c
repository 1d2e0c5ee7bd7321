/*
 * The same product gives the same bits, whatever the order in which CTAs come to the sums that they
 * share, and however much of it runs beside the end of the launch before.
 */
#include "kernel_cases.h"

#include <criterion/criterion.h>

#define TIMES 1000

Test(kernels_repeat, of_a_tile_shared_in_a_cluster, .timeout = 300)
{
    kernel_cases_repeat("sm90a.bf16.bf16.nt.128x128x64.s5.c1x1x2.split.tma", 1, TIMES);
}

Test(kernels_repeat, of_a_tile_shared_by_clusters, .timeout = 300)
{
    kernel_cases_repeat("sm90a.bf16.bf16.nt.128x128x64.s5.c1x1x2.split.tma", 4, TIMES);
}

Test(kernels_repeat, of_a_tile_that_the_last_of_three_adds, .timeout = 300)
{
    kernel_cases_repeat("sm90a.bf16.bf16.nt.128x112x64.s6.c1x1.split.tma", 3, TIMES);
}

Test(kernels_repeat, of_operands_copied_for_each_other, .timeout = 300)
{
    kernel_cases_repeat("sm90a.bf16.bf16.nt.128x256x64.s4.c2x1.coop.tma", 1, TIMES);
}

Test(kernels_repeat, of_groups_that_take_turns, .timeout = 300)
{
    kernel_cases_repeat("sm90a.bf16.bf16.nt.128x176x64.s5.c2x1.pingpong.tma", 1, TIMES);
}

Test(kernels_repeat, of_parts_added_by_a_second_launch, .timeout = 300)
{
    kernel_cases_repeat("sm90a.bf16.bf16.nt.64x128x64.s9.c2x1.parts.tma", 4, TIMES);
}

/* --- launches that overlap: what the one before writes is waited for; what the one before that
 * wrote is there
 * -------------------------------------------------------------------------------------- */

Test(kernels_repeat, of_chains_two_to_a_multiprocessor, .timeout = 300)
{
    kernel_cases_chain("sm90a.bf16.bf16.nt.64x64x64.s5.c1x1.coop.tma", 1);
}

Test(kernels_repeat, of_chains_one_to_a_multiprocessor, .timeout = 300)
{
    kernel_cases_chain("sm90a.bf16.bf16.nt.64x128x64.s8.c1x1.coop.tma", 1);
}

Test(kernels_repeat, of_chains_that_realign, .timeout = 300)
{
    kernel_cases_chain("sm90a.bf16.bf16.nt.64x64x64.s2.c1x1.split.realign.swapped", 1);
}

Test(kernels_repeat, of_chains_on_cuda_cores, .timeout = 300)
{
    kernel_cases_chain("sm90a.bf16.bf16.nt.64x248x8.s1.c1x1.outer.element", 1);
    kernel_cases_chain("sm90a.bf16.bf16.nt.1x1x16.s1.c1x1.dot.element", 1);
}

Test(kernels_repeat, of_chains_of_strips, .timeout = 300)
{
    kernel_cases_chain("sm90a.bf16.bf16.nt.128x112x64.s1.c1x1.strip.element", 1);
}

Test(kernels_repeat, of_chains_of_clusters_and_groups_in_turns, .timeout = 300)
{
    kernel_cases_chain("sm90a.bf16.bf16.nt.128x128x64.s6.c2x1.pingpong.tma", 1);
}

Test(kernels_repeat, of_chains_of_narrow_tiles, .timeout = 300)
{
    kernel_cases_chain("sm90a.bf16.bf16.nt.16x64x128.s10.c1x1.split.tma.swapped", 1);
}

Test(kernels_repeat, of_chains_with_splits, .timeout = 300)
{
    kernel_cases_chain("sm90a.bf16.bf16.nt.64x64x128.s6.c1x1.split.tma.swapped", 2);
}

Test(kernels_repeat, of_chains_of_tiles_shared_in_a_cluster, .timeout = 300)
{
    kernel_cases_chain("sm90a.bf16.bf16.nt.128x128x64.s5.c1x1x2.split.tma", 1);
}

Test(kernels_repeat, of_chains_of_parts, .timeout = 300)
{
    kernel_cases_chain("sm90a.bf16.bf16.nt.64x128x64.s9.c2x1.parts.tma", 2);
    kernel_cases_chain("sm90a.bf16.bf16.nt.64x512x32.s4.c1x1.stream.element.swapped", 2);
}
