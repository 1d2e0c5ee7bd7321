/* Host stand-ins for kernels_src/ptx/: the ISA's words, computed by machine.h. */
#pragma once

#include "base/prelude.cuh"

#include "../machine.h"

/* A shared address is an offset into the CTA's memory, plus one page: so that 0 is none. */
extern u8 dynamic_shared[];

namespace host
{

constexpr u32 shared_base = 4096;

/* Above an address stands the number of its CTA in the cluster. */
constexpr u32 rank_shift = 24;

/* The same place in the memory of a CTA of the cluster. */
inline u8 *shared_of(u32 rank, u32 s_address, u32 size)
{
    s_address &= (1u << rank_shift) - 1;
    if (s_address < shared_base || s_address % size != 0 || rank >= machine::self.ctas.size()) {
        fprintf(stderr, "shared address %u of CTA %u for %u bytes\n", s_address, rank, size);
        abort();
    }
    if (machine::self.ctas[rank].ended == machine::self.threads) {
        fprintf(stderr, "shared address %u of CTA %u, which has ended\n", s_address, rank);
        abort();
    }
    return machine::self.ctas[rank].memory + (s_address - shared_base);
}

/* Another CTA runs, and has barriers, when the cluster has met. */
inline void expect_met(u32 rank)
{
    if (rank == machine::now().rank || machine::now().has_met)
        return;
    fprintf(stderr, "thread %u reaches CTA %u before the cluster has met\n",
            machine::now().thread.x, rank);
    abort();
}

/* Before a thread lets others go on: what it has initialised is fenced, by itself. */
inline void expect_fenced()
{
    if (!machine::now().has_new_barriers)
        return;
    fprintf(stderr, "thread %u has initialised barriers without a fence\n",
            machine::now().thread.x);
    abort();
}

inline u8 *shared(u32 s_address, u32 size)
{
    if (size <= 16 && s_address % size != 0) {
        fprintf(stderr, "shared address %x for %u bytes\n", s_address, size);
        abort();
    }
    if (s_address >> rank_shift != machine::now().rank) {
        fprintf(stderr, "shared address %x in CTA %u\n", s_address, machine::now().rank);
        abort();
    }
    return shared_of(machine::now().rank, s_address, size);
}

template <typename T> inline T shared_load(u32 s_address)
{
    T value;

    memcpy(&value, shared(s_address, sizeof value), sizeof value);
    return value;
}

template <typename T> inline void shared_store(u32 s_address, T value)
{
    memcpy(shared(s_address, sizeof value), &value, sizeof value);
}

/* A grid that begins beside the end of the one before touches no memory before it has waited. */
inline void expect_turn(const char *does)
{
    if (machine::now().is_in_turn)
        return;
    fprintf(stderr, "thread %u %s and has not waited for the grid before\n",
            machine::now().thread.x, does);
    abort();
}

/* Misaligned accesses fault on a GPU, so they end the run here too. */
inline void expect_aligned(u64 g_address, u32 size)
{
    if (g_address % size == 0)
        return;
    fprintf(stderr, "global address %llx for %u bytes\n", g_address, size);
    abort();
}

inline bool is_free(u64 g_address, u32 size)
{
    for (const auto &range : machine::self.free)
        if (g_address >= range.first && g_address + size <= range.second)
            return true;
    return false;
}

inline u8 *global(u64 g_address, u32 size)
{
    expect_aligned(g_address, size);
    if (!is_free(g_address, size))
        expect_turn("accesses global memory");
    return (u8 *)g_address;
}

/* What is copied to shared memory is an input, and so is what lies there. */
inline u8 *global_input(u64 g_address, u32 size)
{
    expect_aligned(g_address, size);
    if (!machine::self.inputs_settled && !is_free(g_address, size))
        expect_turn("reads an input");
    return (u8 *)g_address;
}

inline bool is_input(u64 g_address)
{
    for (const std::pair<uint64_t, uint64_t> &input : machine::self.inputs)
        if (g_address >= input.first && g_address < input.second)
            return true;
    return false;
}

inline u8 *global_source(u64 g_address, u32 size)
{
    return is_input(g_address) ? global_input(g_address, size) : global(g_address, size);
}

template <typename T> inline T global_load(u64 g_address)
{
    T value;

    memcpy(&value, global_source(g_address, sizeof value), sizeof value);
    return value;
}

template <typename T> inline void global_store(u64 g_address, T value)
{
    memcpy(global(g_address, sizeof value), &value, sizeof value);
}

} // namespace host
