/*
 * Configuration -> cubin -> a kernel that the worker has loaded. Cubins are kept as memfds, so a
 * new worker gets them without a look at the disk.
 *
 * Owner: the server owns the table; a kernel lives as long as the daemon (the plan names at most
 * CONFIG_LIST_MAX). Thread: loop.
 */
#pragma once

#include "../core/list.h"
#include "compiler.h"
#include "worker_process.h"

enum kernel_state {
    KERNEL_COMPILING, /* asked from the compiler */
    KERNEL_CUBIN,     /* there; the worker has it not, or not yet */
    KERNEL_LOADED,
    KERNEL_FAILED, /* `fault` says why; asked again when wanted again */
};

struct kernel {
    struct list link;
    struct kernels *table;
    uint64_t id;
    struct config config;
    char text[CONFIG_TEXT_MAX]; /* the configuration's, which every answer has */
    enum kernel_state state;
    struct key key;
    int fd; /* memfd with the cubin; -1: none */
    uint64_t size;
    enum compiler_source source;
    double compile_seconds;
    bool was_refused;     /* by the driver, once: the second time is a failure */
    uint32_t half_deaths; /* of workers that loaded it; from WORKER_ASK_DEATHS on it stays FAILED */
    struct fault fault;
};

struct kernels {
    struct list all;
    struct worker_process *worker;
    struct compiler *compiler; /* borrowed */
    /* A kernel became LOADED or FAILED. */
    void (*changed)(struct kernels *kernels);
    uint64_t next_id;
};

void kernels_init(struct kernels *kernels,
                  struct worker_process *worker,
                  struct compiler *compiler,
                  void (*changed)(struct kernels *kernels));
void kernels_deinit(struct kernels *kernels);

/* The kernel for a configuration, on its way if it was not there. < 0 only for lack of memory. */
int kernels_want(struct kernels *kernels, const struct config *config, struct kernel **ret_kernel);
/* The worker's answer to a load. */
void kernels_loaded(struct kernels *kernels, uint64_t id, const struct fault *fault);
void kernels_restore(struct kernels *kernels); /* a new worker started: load all again */
/* That were asked for; each that has a cubin holds a descriptor of it. */
uint64_t kernels_count(const struct kernels *kernels);
void kernels_forget(struct kernels *kernels); /* the worker is gone: nothing is loaded */
