/*
 * The same product gives the same bits, whatever the order in which CTAs come to the sums that they
 * share.
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

Test(kernels_repeat, of_operands_copied_for_each_other, .timeout = 300)
{
    kernel_cases_repeat("sm90a.bf16.bf16.nt.128x256x64.s4.c2x1.coop.tma", 1, TIMES);
}
