/*
 * Programmatic dependent launch: a grid may start while the one before it in the stream still runs,
 * and waits here before it touches memory.
 */
#pragma once

#include "ptx/target_sm90a.cuh"

/* Until the grids before this one are complete and their writes visible. */
DEVICE void griddepcontrol_wait()
{
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

/* From this CTA's side the next grid may start. One thread's word is enough. */
DEVICE void griddepcontrol_launch_dependents()
{
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}
