/*
 * Memory of the CPU device: host memfds mapped as they come, device memory made as sealed memfds
 * that outlive this process.
 *
 * Descriptors are trusted to be as large as the front says for as long as they are mapped: it takes
 * client memory only with F_SEAL_SHRINK, and what is made here carries that seal.
 *
 * Owner: backend_cpu, by value. Thread: the worker's.
 */
#pragma once

#include "../core/list.h"
#include "../core/status.h"
#include "../link/link_message.h"

struct cpu_memory {
    struct list mappings;
};

enum {
    CPU_MEMORY_E_REFUSED = 1, /* `ret_fault` says why */
};

void cpu_memory_init(struct cpu_memory *memory);
void cpu_memory_deinit(struct cpu_memory *memory); /* unmaps all */

/* As backend_operations.map. */
int cpu_memory_map(struct cpu_memory *memory,
                   const struct link_message *request,
                   int *fd,
                   uint64_t *ret_address,
                   struct fault *ret_fault);
void cpu_memory_unmap(struct cpu_memory *memory, uint64_t id); /* unknown numbers are ignored */

/* Bytes of memory in the machine. */
uint64_t cpu_memory_total(void);
/* Bytes that can be had without swapping and without the control group's out-of-memory killer.
 * `proc` and `cgroup` are "/proc" and "/sys/fs/cgroup" but in tests. */
uint64_t cpu_memory_available(const char *proc, const char *cgroup);
