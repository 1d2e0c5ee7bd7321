/*
 * The kernels of a run: asked for by configuration, compiled together on all processors, loaded
 * once.
 *
 * Owner: the command. Thread: one; the compiler's threads live within kernel_set_build().
 */
#pragma once

#include "../../daemon/jit/nvrtc.h"
#include "gpu.h"

#define KERNEL_SET_MAX 1024

struct kernel_set {
    struct gpu *gpu; /* borrowed */
    struct nvrtc *nvrtc;
    struct sources sources;
    struct kernel_entry *entries; /* owned, KERNEL_SET_MAX */
    size_t count, built;
    /* Before the first build. */
    const char *const *more; /* borrowed options for the compiler, NULL behind the last; or NULL */
    uint64_t first_id;       /* sets of one GPU have ids of their own */
};

/* What the compiler said of a kernel. */
struct kernel_made {
    uint32_t registers;
    double seconds;
};

/* `folder`: kernel files; NULL: those of the build. */
int kernel_set_init(struct kernel_set *set,
                    struct gpu *gpu,
                    const char *folder,
                    struct fault *fault);
void kernel_set_deinit(struct kernel_set *set);
void kernel_set_add(struct kernel_set *set, const struct config *config);
void kernel_set_build(struct kernel_set *set); /* what was added since */
/* Of one that was built. */
struct kernel_made kernel_set_made(const struct kernel_set *set, const struct config *config);
/* NULL: it was not built, or it cannot be: `fault` says why. */
const struct cuda_kernel *
kernel_set_find(const struct kernel_set *set, const struct config *config, struct fault *fault);
