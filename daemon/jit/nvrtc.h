/*
 * One compile: configuration and sources to cubin or log. NVRTC is loaded with dlopen; it needs no
 * GPU and no driver. Runs in the compile role (or in gemmctl compile), never in the front.
 */
#pragma once

#include "../core/status.h"
#include "cache.h"
#include "key.h"
#include "sources.h"

struct nvrtc; /* the loaded library */

/* Looks at $GEMMD_NVRTC (a path; when set, nowhere else), then in the `lib` folder beside the
 * binary's own, then where the loader finds libnvrtc.so.13 and .12, then in the toolkit's usual
 * place. NVRTC_E_ABSENT with the reason in `ret_fault`. */
int nvrtc_new(struct nvrtc **ret_nvrtc, struct fault *ret_fault);
struct nvrtc *nvrtc_free(struct nvrtc *nvrtc);
void nvrtc_identity(const struct nvrtc *nvrtc, struct compiler_identity *ret_identity);

/* Compiles the smallest kernel for nobody, so that the library's pages and tables are in memory
 * when a real one comes. */
void nvrtc_rehearse(struct nvrtc *nvrtc);

struct nvrtc_result {
    struct cubin cubin; /* with registers, shared memory and spills as ptxas reported them */
    char *log;          /* owned; "" when there is nothing to say */
};

void nvrtc_result_deinit(struct nvrtc_result *result);

/* 0, or NVRTC_E_COMPILE or NVRTC_E_MEMORY with `ret_result` filled: the log says why and the cubin
 * is empty (a result, not a failure of ours). The configuration has a kernel (is not CPU). May run
 * on several threads at once. */
int nvrtc_compile(struct nvrtc *nvrtc,
                  const struct sources *sources,
                  const struct config *config,
                  struct nvrtc_result *ret_result);
/* The same with options that the configuration does not have, NULL behind the last: for kernels
 * that are looked into, never for the cache, whose key does not know of them. */
#define NVRTC_MORE_MAX 4
int nvrtc_compile_with(struct nvrtc *nvrtc,
                       const struct sources *sources,
                       const struct config *config,
                       const char *const *more,
                       struct nvrtc_result *ret_result);

enum {
    NVRTC_E_ABSENT = 1,
    NVRTC_E_COMPILE,
    NVRTC_E_MEMORY, /* the compiler ran out of it: this process has a limit */
};
