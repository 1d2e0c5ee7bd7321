/*
 * Two grids at a time: what a launch waits for of the one before it, and when the next may begin
 * (README.md, "Two grids at a time").
 */
#pragma once

#include "abi/job.h"
#include "ptx/griddepcontrol.cuh"

/* Of a feed's first job, for all of them: what the grid before writes is none of their inputs. */
DEVICE bool are_settled(const gemmd_job &first)
{
    return first.flags & GEMMD_JOB_INPUTS_SETTLED;
}

/* Before all else: of a grid that leaves room, the next one may begin at once. In a row of small
 * products this and the launch are the time between two of them. */
DEVICE void lead_on(const gemmd_job &first)
{
    if (first.flags & GEMMD_JOB_NEXT_AT_ONCE)
        griddepcontrol_launch_dependents();
}

/* By one thread of every CTA. The next grid may begin when the one before this has ended: so there
 * are two at any time, and what a launch need not wait for follows from the one before it alone
 * (daemon/worker/cuda_launch.c). No CTA leaves earlier, so the end of a grid is that of all before
 * it. */
DEVICE void take_turn()
{
    griddepcontrol_wait();
    griddepcontrol_launch_dependents();
}
