/*
 * mbarrier: a phase ends when its arrivals and its bytes are all there; then the next one begins
 * with the same counts. Waiting is for the end of the phase of the given parity: on a new barrier
 * a wait for parity 1 returns at once.
 */
#pragma once

#include "ptx/target_sm90a.cuh"

DEVICE void mbarrier_init(u32 s_barrier, u32 count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(s_barrier), "r"(count) : "memory");
}

/* Makes inits visible to the cluster and to the asynchronous proxy. */
DEVICE void fence_mbarrier_init_release_cluster()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

DEVICE void mbarrier_arrive_expect_tx(u32 s_barrier, u32 bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(s_barrier),
                 "r"(bytes)
                 : "memory");
}

DEVICE void mbarrier_arrive(u32 s_barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(s_barrier) : "memory");
}

/* On the barrier at the same place in CTA `rank` of the cluster. Orders this thread's accesses for
 * its own CTA only: the form with .release.cluster is a MEMBAR.GPU each time. */
DEVICE void mbarrier_arrive_cluster(u32 s_barrier, u32 rank)
{
    asm volatile("{\n"
                 ".reg .b32 remote;\n"
                 "mapa.shared::cluster.u32 remote, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
                 "}" ::"r"(s_barrier),
                 "r"(rank)
                 : "memory");
}

/* The same, but what this thread accessed before comes before what follows there. */
DEVICE void mbarrier_arrive_release_cluster(u32 s_barrier, u32 rank)
{
    asm volatile("{\n"
                 ".reg .b32 remote;\n"
                 "mapa.shared::cluster.u32 remote, %0, %1;\n"
                 "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [remote];\n"
                 "}" ::"r"(s_barrier),
                 "r"(rank)
                 : "memory");
}

/* As below, and what the arrivals released at cluster scope is seen. */
DEVICE bool mbarrier_try_wait_parity_acquire_cluster(u32 s_barrier, u32 parity)
{
    u32 is_over;

    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n"
                 "selp.u32 %0, 1, 0, p;\n"
                 "}"
                 : "=r"(is_over)
                 : "r"(s_barrier), "r"(parity)
                 : "memory");
    return is_over;
}

/* Whether it is over now; false where that is not `is_wanted`, by a predicate and not a branch. */
DEVICE bool mbarrier_test_wait_parity_if(bool is_wanted, u32 s_barrier, u32 parity)
{
    u32 is_over;

    asm volatile("{\n"
                 ".reg .pred p, q;\n"
                 "setp.ne.u32 q, %1, 0;\n"
                 "mov.pred p, 0;\n"
                 "@q mbarrier.test_wait.parity.shared::cta.b64 p, [%2], %3;\n"
                 "selp.u32 %0, 1, 0, p;\n"
                 "}"
                 : "=r"(is_over)
                 : "r"((u32)is_wanted), "r"(s_barrier), "r"(parity)
                 : "memory");
    return is_over;
}

/* Whether it is over now. */
DEVICE bool mbarrier_test_wait_parity(u32 s_barrier, u32 parity)
{
    u32 is_over;

    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                 "selp.u32 %0, 1, 0, p;\n"
                 "}"
                 : "=r"(is_over)
                 : "r"(s_barrier), "r"(parity)
                 : "memory");
    return is_over;
}

/* False when a time that the hardware chooses went by first. */
DEVICE bool mbarrier_try_wait_parity(u32 s_barrier, u32 parity)
{
    u32 is_over;

    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                 "selp.u32 %0, 1, 0, p;\n"
                 "}"
                 : "=r"(is_over)
                 : "r"(s_barrier), "r"(parity)
                 : "memory");
    return is_over;
}
