#pragma once

#include "ptx/target.cuh"

inline void cp_async_cg_16(u32 s_destination, u64 g_source, u32 src_size)
{
    machine::copy c = {host::shared(s_destination, 16), host::global_input(g_source, 16), src_size};

    if (src_size > 16) {
        fprintf(stderr, "cp.async of %u bytes\n", src_size);
        abort();
    }
    if (machine::self.copies_late)
        machine::now().open_group.push_back(c);
    else
        machine::copy_now(c);
}

inline void cp_async_commit_group()
{
    machine::fiber &me = machine::now();

    me.groups.push_back(me.open_group);
    me.open_group.clear();
}

template <int N> inline void cp_async_wait_group()
{
    machine::fiber &me = machine::now();

    while (me.groups.size() > N) {
        for (const machine::copy &c : me.groups.front())
            machine::copy_now(c);
        me.groups.erase(me.groups.begin());
    }
}
