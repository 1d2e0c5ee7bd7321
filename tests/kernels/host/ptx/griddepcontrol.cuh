#pragma once

#include "ptx/target.cuh"

inline void griddepcontrol_wait()
{
    machine::now().is_in_turn = true;
}

/* The grid after next must find this one's predecessor complete. */
inline void griddepcontrol_launch_dependents()
{
    if (!machine::self.lets_next_begin)
        host::expect_turn("lets the next grid begin");
}
