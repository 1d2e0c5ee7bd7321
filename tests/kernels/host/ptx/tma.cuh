#pragma once

#include "abi/job.h"
#include "ptx/mbarrier.cuh"
#include "ptx/target.cuh"

/* What emulate.c writes in place of the driver's words. */
struct host_tensor {
    u64 address, size[3], stride[2], box[2], element_size;
};

/* The 128-byte swizzle permutes 16-byte chunks by address bits. */
inline u32 host_swizzled(u32 s_address)
{
    return s_address ^ (s_address >> 3 & 0x70);
}

/* Calls each(s_address, pointer or NULL outside of the tensor) for every element of a box. On the
 * way out what the tensor's rows end with is rounded up to 16 bytes, as seen on an H200. */
template <typename F>
inline void
host_box(const host_tensor &t, u32 s_box, int c0, int c1, int c2, u64 columns_at_once, F each)
{
    u64 columns = (t.size[0] + columns_at_once - 1) / columns_at_once * columns_at_once;

    for (u64 row = 0; row < t.box[1]; row++)
        for (u64 col = 0; col < t.box[0]; col++) {
            u64 at[3] = {c0 + col, c1 + row, (u64)c2};
            bool is_inside = at[0] < columns && at[1] < t.size[1] && at[2] < t.size[2];
            u64 g_element =
                t.address + at[0] * t.element_size + at[1] * t.stride[0] + at[2] * t.stride[1];

            each(host_swizzled(s_box + (u32)(row * 128 + col * t.element_size)),
                 is_inside ? (u8 *)g_element : nullptr);
        }
}

inline host_tensor host_tensor_of(const gemmd_tensor_map *map, u32 s_box)
{
    host_tensor t;

    memcpy(&t, map, sizeof t);
    if (t.box[0] * t.element_size != 128 || t.box[1] == 0 || t.box[1] > 256 || s_box % 128 != 0) {
        fprintf(stderr, "tensor copy at %u of a box of %llu x %llu\n", s_box, t.box[0], t.box[1]);
        abort();
    }
    return t;
}

inline void cp_async_bulk_prefetch_tensor_3d(const gemmd_tensor_map *, int, int, int)
{
}

inline void host_tensor_load(
    u32 rank, u32 s_destination, const host_tensor &t, int c0, int c1, int c2, u32 s_barrier)
{
    u32 size = (u32)t.element_size;

    host_box(t, s_destination, c0, c1, c2, 1, [&](u32 s_element, const u8 *from) {
        u8 *to = host::shared_of(rank, s_element, size);

        if (from)
            memcpy(to, from, size);
        else
            memset(to, 0, size);
    });
    host_mbarrier_complete(rank, s_barrier, (u32)(t.box[1] * 128));
}

inline void cp_async_bulk_tensor_3d_shared_global_multicast(
    u32 s_destination, const gemmd_tensor_map *map, int c0, int c1, int c2, u32 s_barrier, u16 mask)
{
    host_tensor t = host_tensor_of(map, s_destination);

    if (!machine::self.inputs_settled)
        host::expect_turn("copies from global memory");
    for (u32 rank = 0; rank < 16; rank++) {
        if ((mask >> rank & 1) == 0)
            continue;
        host::expect_met(rank);
        machine::action arrive = [=] {
            host_tensor_load(rank, s_destination, t, c0, c1, c2, s_barrier);
        };
        if (machine::self.copies_late)
            machine::self.late.push_back(arrive);
        else
            arrive();
    }
}

inline void cp_async_bulk_tensor_3d_shared_global(
    u32 s_destination, const gemmd_tensor_map *map, int c0, int c1, int c2, u32 s_barrier)
{
    cp_async_bulk_tensor_3d_shared_global_multicast(s_destination, map, c0, c1, c2, s_barrier,
                                                    (u16)(1u << machine::now().rank));
}

inline void cp_async_bulk_tensor_3d_global_shared(
    const gemmd_tensor_map *map, int c0, int c1, int c2, u32 s_source, u64)
{
    host_tensor t = host_tensor_of(map, s_source);

    host::expect_turn("copies to global memory");
    machine::action leave = [=] {
        host_box(t, s_source, c0, c1, c2, 16 / t.element_size, [&](u32 s_element, u8 *to) {
            if (to)
                memcpy(to, host::shared(s_element, (u32)t.element_size), t.element_size);
        });
    };

    if (machine::self.copies_late)
        machine::now().stores.open.push_back(leave);
    else
        leave();
}

inline u64 createpolicy_evict_first()
{
    return 0;
}

inline u64 createpolicy_evict_last()
{
    return 0;
}

inline void cp_async_bulk_commit_group()
{
    machine::now().stores.commit();
}

template <int N> inline void cp_async_bulk_wait_group_read()
{
    machine::now().stores.wait(N);
}

template <int N> inline void cp_async_bulk_wait_group()
{
    machine::now().stores.wait(N);
}
