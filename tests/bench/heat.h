/*
 * Keeps the GPU under full load while the host prepares, so that no row begins with a rested chip:
 * a thread of its own runs one graph again and again on a stream of its own.
 *
 * Owner: the command. Thread: calls come from one thread; the heater's touches only its own stream.
 */
#pragma once

#include "gpu.h"

#include <pthread.h>

struct heat {
    struct gpu *gpu;
    struct gpu_graph graph; /* owned */
    CUstream stream;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool is_wanted, is_running, is_ending, has_failed;
};

/* Takes the graph: some milliseconds of work. 0, or -1. */
int heat_init(struct heat *heat, struct gpu *gpu, struct gpu_graph *graph);
void heat_on(struct heat *heat);
void heat_off(struct heat *heat); /* returns when nothing of it runs */
void heat_deinit(struct heat *heat);
