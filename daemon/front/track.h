/*
 * Commands under way in one track (kernels_src/abi/ring.h): how much work they are, and what each
 * cost of the device when it is over.
 *
 * A quick command runs beside all others of its track, and then neither one's time says what it
 * took of the device: of ten small products that end while a slice of a large one runs each would
 * be charged a tenth of that slice, and the large one nothing. So a command's time counts as its
 * cost only when none of another kind was under way with it, from its commit to its end; else the
 * estimate does. Kinds are the classes of quick jobs, whose estimates err alike; all that is not
 * quick is one kind, since that runs one after the other.
 *
 * Owner: the queue. Thread: loop.
 */
#pragma once

#include "../core/std.h"

struct gemmd_completion;
struct job;

struct track {
    uint64_t under_way;
    double seconds;         /* estimated, of those */
    double quick_seconds;   /* of those that are quick */
    uint64_t busy_until_ns; /* the last command's end: the next one began no earlier */

    /* The latest commands, those of one kind in a row. */
    uint64_t kind, kind_begin; /* kind_begin: the first one's number */
    uint64_t other_kinds;      /* commands from before it that are under way */
};

/* A command of a job, while it is under way. Numbers rise. */
struct track_command {
    uint64_t number;
    double seconds; /* estimated */
    bool is_quick;
    bool began_alone; /* none of another kind was under way */
};

void track_begin(struct track *track,
                 const struct job *job,
                 uint64_t number,
                 double seconds,
                 struct track_command *ret_command);

/* How long the track was busy with it: from when it was taken, or the one before it ended if that
 * was later. Summed over commands that is the track's busy time. ret_is_cost: whether it is what
 * the command cost. */
double track_end(struct track *track,
                 const struct track_command *command,
                 const struct gemmd_completion *completion,
                 bool *ret_is_cost);
