/*
 * What ptxas says about a kernel in NVRTC's log when it is run with -v:
 *
 *   ptxas         .     872 bytes stack frame, 2044 bytes spill stores, 2068 bytes spill loads
 *   ptxas info    : Used 32 registers, used 1 barriers, 872 bytes cumulative ..., 1024 bytes smem
 *
 * Advisory C75xx ("Potential Performance Loss: wgmma.mma_async instructions are serialized ...")
 * means that the compiler gave up on overlap; tests treat it as a failed compile.
 */
#pragma once

#include "../core/std.h"

struct ptxas_usage {
    uint32_t registers;     /* the most of any function */
    uint32_t shared_memory; /* static, bytes; the most of any function */
    uint32_t spill_bytes;   /* stores and loads of all functions */
    bool has_advisory;      /* a C75xx line */
};

/* Lines of another form are ignored: a log that says nothing reads as zeros. */
void ptxas_log_read(const char *log, struct ptxas_usage *ret_usage);
