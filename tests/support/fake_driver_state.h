/*
 * What the files of the fake driver share: its state, and the step every call begins with.
 */
#pragma once

#include "../../daemon/worker/driver.h"
#include "fake_driver.h"

#define FAKE_CALL_NUMBER(name) CALL_##name,

enum { DRIVER_CALLS(FAKE_CALL_NUMBER) DRIVER_PARKED_CALLS(FAKE_CALL_NUMBER) CALL_COUNT };

struct fake_driver {
    unsigned calls[CALL_COUNT];
    unsigned fail_at[CALL_COUNT]; /* the count at which it fails; 0: never */
    CUresult fail_with[CALL_COUNT];
    CUresult broken;
    bool is_held;
    cuuint32_t *held_word;
    cuuint32_t held_value;
    fake_driver_launch_fn on_launch;
    struct fake_driver_launch last_launch;
    struct fake_driver_live live;
    size_t scratch_high;
    unsigned register_flags;
};

extern struct fake_driver fake;

/* Counts the call; its injected result, or CUDA_SUCCESS. */
CUresult fake_driver_enter(int call);

/* What a launch does unless the test says otherwise. */
void fake_driver_product(const struct fake_driver_launch *launch);

#define ENTER(name)                                                                                \
    do {                                                                                           \
        CUresult entered_ = fake_driver_enter(CALL_##name);                                        \
        if (entered_ != CUDA_SUCCESS)                                                              \
            return entered_;                                                                       \
    } while (0)
