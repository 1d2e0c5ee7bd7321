/*
 * What launches of a stream write that may still run beside the next one: the latest, and those
 * before it that let the next begin at once (cuda_launch.h).
 */
#pragma once

#include "access.h"

/* Each is compared with what a launch reads; as many as a launch has jobs (GEMMD_FEED_JOBS), and
 * more. */
#define CUDA_RUNNING_MAX 8

struct cuda_running {
    size_t count;
    struct access written[CUDA_RUNNING_MAX];
};
