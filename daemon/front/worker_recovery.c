#include "worker_recovery.h"

const char *recovery_stage_name(enum recovery_stage stage)
{
    static const char *const names[RECOVERY_STAGES] = {"noticed", "ended", "started", "restored",
                                                       "answered"};

    return names[stage];
}

static uint64_t before(const struct recovery *recovery, enum recovery_stage stage)
{
    return stage == RECOVERY_NOTICED ? recovery->heard_ns : recovery->reached_ns[stage - 1];
}

void recovery_begin(struct recovery *recovery, uint64_t heard_ns, uint64_t now_ns)
{
    *recovery = (struct recovery){.heard_ns = heard_ns};
    recovery->reached_ns[RECOVERY_NOTICED] = now_ns;
}

bool recovery_has_reached(const struct recovery *recovery, enum recovery_stage stage)
{
    return recovery->reached_ns[stage] != 0;
}

void recovery_reach(struct recovery *recovery, enum recovery_stage stage, uint64_t now_ns)
{
    if (before(recovery, stage) != 0 && !recovery_has_reached(recovery, stage))
        recovery->reached_ns[stage] = now_ns;
}

double recovery_seconds(const struct recovery *recovery, enum recovery_stage stage)
{
    if (!recovery_has_reached(recovery, stage))
        return 0;
    return (double)(recovery->reached_ns[stage] - before(recovery, stage)) * 1e-9;
}
