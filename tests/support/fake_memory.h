/*
 * How memory of the fake driver looks from other processes, for tests that have no CUDA.
 */
#pragma once

#include <stdint.h>

/* A memfd of this name is an allocation. */
#define FAKE_DRIVER_MEMORY "fake-device-memory"

/* What a legacy handle holds: whose descriptor the memory is. */
#define FAKE_DRIVER_IPC_MAGIC 0x66616b65u

struct fake_driver_ipc {
    uint32_t magic;
    int pid, fd;
};
