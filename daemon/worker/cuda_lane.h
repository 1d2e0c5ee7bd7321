/*
 * A lane: one CUDA stream, and a word in pinned memory into which the stream writes how many
 * commands it has finished, so that looking for completions is a load and no driver call. Commands
 * on one lane run in their order; those on different lanes at the same time, so that one's last
 * tiles leave multiprocessors to the next one's first.
 *
 * A write between two launches keeps the device idle, 7 us from CTA to CTA on an H200, and the
 * second from beginning beside the end of the first, where it could (cuda_launch.h); an event
 * between them does neither. So the lane of large products has its writes on a stream of their own,
 * behind an event each. That costs two driver calls, and no microsecond more until the word is
 * written.
 *
 * Owner: cuda_execute. Thread: the worker's. What a launch needs beside its operands (workspaces)
 * belongs to a lane, since launches on different lanes overlap.
 */
#pragma once

#include "../../kernels_src/abi/ring.h"
#include "../core/status.h"
#include "cuda_running.h"
#include "cuda_scratch.h"
#include "cuda_workspace.h"

/* Quick commands run side by side, and with priority: their CTAs are the next to start when others
 * end, before those of a large command that waits. Two lanes of large ones keep the device full. */
#define CUDA_QUICK_LANES 4
#define CUDA_MAIN_LANES  (CUDA_QUICK_LANES + 2)
/* Of these, the one with its writes elsewhere. */
#define CUDA_LANE_OVERLAPPING CUDA_QUICK_LANES

/* Of streams: lower numbers first. */
#define CUDA_PRIORITY_QUICK -1
#define CUDA_PRIORITY_LARGE 0

/* Further ones for the other tracks (kernels_src/abi/ring.h). */
enum {
    CUDA_LANE_IN = CUDA_MAIN_LANES,
    CUDA_LANE_OUT,
    CUDA_LANE_STREAM,    /* ends of streamed products, and what goes out of them (cuda_panels.h) */
    CUDA_LANE_PANELS_IN, /* what comes in */
    CUDA_LANE_PANELS_0,  /* and is computed */
    CUDA_LANE_PANELS_1,
    CUDA_LANES,
};

struct cuda_lane {
    CUstream stream;
    CUstream ends; /* where the writes are; mostly `stream` */
    CUevent event; /* recorded and waited for at once, so one will do */
    struct cuda_scratch scratch;
    struct cuda_workspace workspace;
    struct cuda_running running;
    uint32_t *done;
    CUdeviceptr done_device;
    uint64_t submitted, finished; /* commands */
};

struct cuda_lanes {
    const struct driver *driver;
    uint32_t *words; /* pinned, one for each lane */
    struct cuda_lane lane[CUDA_LANES];
};

/* As backend_cuda_open(): 0, DRIVER_E_FAULT, or < 0. After a failure deinit gives back the rest. */
int cuda_lanes_init(struct cuda_lanes *lanes, const struct driver *driver, struct fault *ret_fault);
/* Waits for what was submitted. */
void cuda_lanes_deinit(struct cuda_lanes *lanes);

/* Frees the lanes' scratch blocks and workspaces, and waits until they are free. False when there
 * were none. */
bool cuda_lanes_give_back(struct cuda_lanes *lanes);

/* The end of a command, on the lane's stream; ret_number: its count there. */
int cuda_lane_finish(struct cuda_lane *lane,
                     const struct driver *driver,
                     uint64_t *ret_number,
                     struct fault *ret_fault);
/* What comes next on `lane` begins when all that is now on `other` has ended. */
int cuda_lane_after(struct cuda_lane *lane,
                    const struct driver *driver,
                    struct cuda_lane *other,
                    struct fault *ret_fault);
/* Reads the word. */
void cuda_lane_look(struct cuda_lane *lane);

static inline uint64_t cuda_lane_pending(const struct cuda_lane *lane)
{
    return lane->submitted - lane->finished;
}
