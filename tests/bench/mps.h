/*
 * A CUDA MPS of our own: its pipe and log directories are private, so that nobody else's processes
 * join and one that is there already is left alone. Processes join it by mps->environment. Where
 * CUDA_VISIBLE_DEVICES is set, it has the control program number those devices anew, from 0 on: to
 * a process that joins they are all there are, and the variable would name others or none.
 *
 * Owner: whoever started it.
 */
#pragma once

#include "bench.h"

struct mps {
    char directory[64]; /* "" when not started */
    char pipe[128];     /* CUDA_MPS_PIPE_DIRECTORY=... */
    char *environment[3];
};

/* False with the reason. */
bool mps_start(struct mps *mps, char ret_why[200]);
void mps_stop(struct mps *mps);
/* Joins one that another process of ours has started in this directory. */
void mps_join(struct mps *mps, const char *directory);
