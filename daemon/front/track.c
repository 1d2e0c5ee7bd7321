#include "track.h"

#include "job.h"

static uint64_t kind_of(const struct job *job)
{
    return job->is_quick ? job->estimate_class : 0;
}

void track_begin(struct track *track,
                 const struct job *job,
                 uint64_t number,
                 double seconds,
                 struct track_command *ret_command)
{
    if (track->under_way == 0 || track->kind != kind_of(job)) {
        track->kind = kind_of(job);
        track->kind_begin = number;
        track->other_kinds = track->under_way;
    }
    *ret_command = (struct track_command){
        .number = number,
        .seconds = seconds,
        .is_quick = job->is_quick,
        .began_alone = track->other_kinds == 0,
    };
    track->under_way++;
    track->seconds += seconds;
    track->quick_seconds += job->is_quick ? seconds : 0;
}

static double busy_seconds(struct track *track, const struct gemmd_completion *completion)
{
    uint64_t began = MAX(completion->started_ns, track->busy_until_ns);
    uint64_t ended = MAX(completion->finished_ns, began);

    track->busy_until_ns = ended;
    return (double)(ended - began) * 1e-9;
}

double track_end(struct track *track,
                 const struct track_command *command,
                 const struct gemmd_completion *completion,
                 bool *ret_is_cost)
{
    bool is_of_kind = command->number >= track->kind_begin;

    track->under_way--;
    track->seconds -= command->seconds;
    track->quick_seconds -= command->is_quick ? command->seconds : 0;
    /* Sums of differences drift; an empty track is exactly no work. */
    if (track->under_way == 0)
        track->seconds = track->quick_seconds = 0;
    track->other_kinds -= !is_of_kind;
    *ret_is_cost = is_of_kind && command->began_alone;
    return busy_seconds(track, completion);
}
