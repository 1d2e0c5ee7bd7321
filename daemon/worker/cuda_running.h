/*
 * What launches of a stream write that may still run beside the next one: the latest, and those
 * before it that let the next begin at once (cuda_launch.h). Launches have numbers, from 1 on.
 */
#pragma once

#include "access.h"

/* Each is compared with what a launch reads; as many as a launch has jobs (GEMMD_FEED_JOBS), and
 * more. */
#define CUDA_RUNNING_MAX 8

struct cuda_running {
    uint64_t latest, earliest; /* launches that may still run; 0: there were none */
    size_t count;
    struct access written[CUDA_RUNNING_MAX];
};

/* A launch that writes all this, at most CUDA_RUNNING_MAX, and begins when all before have ended or
 * lets none begin before that. */
void cuda_running_only(struct cuda_running *running, size_t count, const struct access written[]);
/* A launch that writes one thing. lets_next_begin: at once, and there is room for it. */
void cuda_running_add(struct cuda_running *running, bool lets_next_begin, struct access written);
bool cuda_running_has_room(const struct cuda_running *running);

/* Whether one of them writes what the job reads. */
bool cuda_running_touches(const struct cuda_running *running, const struct gemmd_job *job);
/* Whether the launch of this number may still run; 0 is none. */
bool cuda_running_has(const struct cuda_running *running, uint64_t number);
