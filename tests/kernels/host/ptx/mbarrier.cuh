#pragma once

#include "ptx/target.cuh"

/* The 64 bits of a barrier, in an order of our own. */
struct host_mbarrier {
    u64 expected : 12, pending : 12, phase : 1;
    i64 bytes : 32;
};

static_assert(sizeof(host_mbarrier) == 8, "a barrier is 64 bits");

inline host_mbarrier *host_mbarrier_at(u32 rank, u32 s_barrier)
{
    return (host_mbarrier *)host::shared_of(rank, s_barrier, 8);
}

inline void host_mbarrier_settle(host_mbarrier *barrier)
{
    machine::self.moved++;
    if (barrier->pending != 0 || barrier->bytes != 0)
        return;
    barrier->phase ^= 1;
    barrier->pending = barrier->expected;
}

inline void host_mbarrier_arrive(u32 rank, u32 s_barrier, u32 bytes)
{
    host_mbarrier *barrier = host_mbarrier_at(rank, s_barrier);

    if (barrier->pending == 0) {
        fprintf(stderr, "mbarrier %u: one arrival too many\n", s_barrier);
        abort();
    }
    barrier->bytes += bytes;
    barrier->pending--;
    host_mbarrier_settle(barrier);
}

inline void host_mbarrier_complete(u32 rank, u32 s_barrier, u32 bytes)
{
    host_mbarrier *barrier = host_mbarrier_at(rank, s_barrier);

    barrier->bytes -= bytes;
    host_mbarrier_settle(barrier);
}

inline void mbarrier_init(u32 s_barrier, u32 count)
{
    host_mbarrier *barrier = host_mbarrier_at(machine::now().rank, s_barrier);

    memset(barrier, 0, sizeof *barrier);
    barrier->expected = barrier->pending = count;
    machine::now().has_new_barriers = true;
}

inline void fence_mbarrier_init_release_cluster()
{
    machine::now().has_new_barriers = false;
}

inline void mbarrier_arrive_expect_tx(u32 s_barrier, u32 bytes)
{
    host_mbarrier_arrive(machine::now().rank, s_barrier, bytes);
}

inline void mbarrier_arrive(u32 s_barrier)
{
    host_mbarrier_arrive(machine::now().rank, s_barrier, 0);
}

inline void mbarrier_arrive_release_cluster(u32 s_barrier, u32 rank)
{
    host::expect_met(rank);
    host_mbarrier_arrive(rank, s_barrier, 0);
}

/* Nothing orders what arrives at another CTA: neither by which barrier was first, nor that this
 * thread has ended. */
inline void mbarrier_arrive_cluster(u32 s_barrier, u32 rank)
{
    if (rank == machine::now().rank || !machine::self.copies_late) {
        mbarrier_arrive_release_cluster(s_barrier, rank);
        return;
    }
    host::expect_met(rank);
    machine::self.moved++;
    machine::self.late.push_back([=] { host_mbarrier_arrive(rank, s_barrier, 0); });
}

inline bool mbarrier_test_wait_parity_if(bool is_wanted, u32 s_barrier, u32 parity)
{
    return is_wanted && host_mbarrier_at(machine::now().rank, s_barrier)->phase != parity;
}

inline bool mbarrier_test_wait_parity(u32 s_barrier, u32 parity)
{
    return mbarrier_test_wait_parity_if(true, s_barrier, parity);
}

inline bool mbarrier_try_wait_parity(u32 s_barrier, u32 parity)
{
    host_mbarrier *barrier = host_mbarrier_at(machine::now().rank, s_barrier);

    machine::now().waits_for = parity ? "mbarrier of parity 1 at" : "mbarrier of parity 0 at";
    machine::now().waits_at = s_barrier;
    if (barrier->phase == parity)
        machine::yield();
    if (barrier->phase == parity)
        return false;
    machine::self.moved++;
    return true;
}

inline bool mbarrier_try_wait_parity_acquire_cluster(u32 s_barrier, u32 parity)
{
    return mbarrier_try_wait_parity(s_barrier, parity);
}
