#include "cuda_copies.h"
#include "repack.h"

#define REPACK_CTAS 4 /* of a multiprocessor: kernels_src/load/repack.cuh */

static int launch(const struct cuda_launch_target *target,
                  const struct cuda_kernel *kernel,
                  const struct gemmd_repack *repack,
                  struct fault *ret_fault)
{
    static const struct cuda_launch_shape shape = {.threads = GEMMD_REPACK_THREADS};
    uint64_t turns = repack_turns(repack);
    unsigned most = target->multiprocessors * REPACK_CTAS;

    return cuda_launch_beside(target, kernel->repack, &shape, (unsigned)MIN(turns, most), repack,
                              ret_fault);
}

/* Nobody writes what is copied, or reads what lies where it is copied to. */
static bool can_be_early(const struct cuda_launch_target *target, const struct gemmd_job *job)
{
    const struct cuda_scratch *scratch = target->scratch;

    return cuda_launch_is_short(job) && cuda_running_has_room(target->running) &&
           !cuda_running_touches(target->running, job) &&
           !cuda_running_has(target->running, scratch->reader[scratch->place]);
}

/* A later slice of a job reads the copies that the first one made: nothing writes to the inputs of
 * a job that is under way. */
static bool are_there(const struct cuda_launch_target *target, const struct gemmd_job *job)
{
    return target->holder != 0 && target->scratch->holder == target->holder && job->first_tile > 0;
}

int cuda_copies_make(const struct cuda_launch_target *target,
                     const struct cuda_kernel *kernel,
                     struct gemmd_job *job,
                     bool *ret_are_read,
                     struct fault *ret_fault)
{
    struct cuda_scratch *scratch = target->scratch;
    struct gemmd_repack repack;
    uint64_t size = repack_plan(job, &repack);
    struct access copies;
    bool is_early;
    int r;

    *ret_are_read = size > 0;
    if (size == 0)
        return 0;
    if (are_there(target, job)) {
        repack_place(&repack, cuda_scratch_address(scratch), job);
        return 0;
    }
    r = cuda_scratch_next(scratch, size, target->running->latest, ret_fault);
    if (r)
        return r;
    is_early = can_be_early(target, job);
    repack.flags = is_early ? GEMMD_REPACK_AT_ONCE : 0;
    repack_place(&repack, cuda_scratch_address(scratch), job);
    r = launch(target, kernel, &repack, ret_fault);
    if (r)
        return r;
    copies =
        (struct access){cuda_scratch_address(scratch), cuda_scratch_address(scratch) + size, true};
    cuda_running_add(target->running, is_early, copies);
    scratch->holder = target->holder;
    cuda_copies_read(target);
    return 0;
}

void cuda_copies_read(const struct cuda_launch_target *target)
{
    target->scratch->reader[target->scratch->place] = target->running->latest;
}
