/*
 * A configuration as a shared object of the host: kernels_src/ compiled by the host's C++ compiler
 * with host/ptx/ in place of its ptx/. Included before all that includes abi/job.h.
 */
#pragma once

#define GEMMD_TENSOR_JOBS 2 /* slices share a feed; a launch of the daemon's has one job */

#include "../../daemon/plan/config.h"
#include "../../kernels_src/abi/job.h"
#include "../../kernels_src/abi/stamp.h"

#include <dlfcn.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

typedef void (*emulate_fn)(const struct gemmd_feed *feed,
                           const struct gemmd_tensor_maps *maps,
                           uint32_t walkers, /* CTAs, or clusters of them */
                           int late,
                           int backwards);

typedef void (*emulate_repack_fn)(const struct gemmd_repack *what, uint32_t ctas, int backwards);

typedef void (*emulate_sum_fn)(const struct gemmd_feed *feed, uint32_t ctas, int backwards);

typedef struct gemmd_stamps *(*emulate_stamps_fn)(void);

struct emulation {
    emulate_fn run;
    emulate_repack_fn repack;
    emulate_sum_fn sum;
    emulate_stamps_fn stamps; /* NULL: the kernel has none */
};

/* `define`: one more option, or NULL. */
static inline bool
kernel_compile(const struct config *config, const char *define, const char *object)
{
    struct config_defines defines;
    char entry[64];
    char *argv[CONFIG_DEFINES_MAX + 20] = {HOST_CXX,
                                           "-std=c++17",
                                           "-O1",
                                           "-fPIC",
                                           "-shared",
                                           "-fvisibility=hidden",
                                           "-w",
                                           "-D_GNU_SOURCE",
                                           "-DGEMMD_TENSOR_JOBS=2", /* as above */
                                           "-I" HOST_DIRECTORY,
                                           "-I" KERNELS_DIRECTORY,
                                           entry,
                                           HOST_DIRECTORY "/kernel.cpp",
                                           "-o",
                                           (char *)(uintptr_t)object};
    size_t count = 15;
    int status;
    pid_t child;

    snprintf(entry, sizeof entry, "-DHOST_ENTRY=\"%s\"", config_source(config));
    config_to_defines(config, &defines);
    for (size_t i = 0; i < defines.count; i++)
        argv[count++] = defines.text[i];
    if (define)
        argv[count++] = (char *)(uintptr_t)define;
    child = fork();
    if (child == 0) {
        execvp(argv[0], argv);
        _exit(127);
    }
    return waitpid(child, &status, 0) == child && status == 0;
}

/* False with a line that says why not. */
static inline bool kernel_open(const char *object, struct emulation *ret_emulation)
{
    void *library = dlopen(object, RTLD_NOW | RTLD_LOCAL);

    if (!library) {
        printf("  %s\n", dlerror());
        return false;
    }
    *(void **)&ret_emulation->run = dlsym(library, "emulate");
    *(void **)&ret_emulation->repack = dlsym(library, "emulate_repack");
    *(void **)&ret_emulation->sum = dlsym(library, "emulate_sum");
    *(void **)&ret_emulation->stamps = dlsym(library, "emulate_stamps");
    return true;
}
