/*
 * Cubins of many configurations, compiled by as many threads as the machine has.
 */
#pragma once

#include "../../daemon/jit/nvrtc.h"

struct compiled {
    struct config config;
    struct nvrtc_result result; /* with the log when it failed */
    int r;                      /* of nvrtc_compile() */
};

/* Compiles the embedded kernels for each `compiled[i].config`. 0, or why nothing was tried. */
int compile_all(struct compiled *compiled, size_t count, struct fault *ret_fault);
