/*
 * Messages on the link's socket: what is rare or carries a descriptor. Fixed size, one per
 * datagram; requests carry a number that the answer repeats.
 */
#pragma once

#include "../core/status.h"
#include "../core/std.h"

#define LINK_FDS_MAX 1 /* every message carries at most one descriptor */

enum link_message_kind {
    /* worker -> front, once, before anything else: the device is ready (or why not: `fault`). */
    LINK_HELLO = 1,
    /* front -> worker: make memory addressable. Answer: LINK_MAPPED with the same id. */
    LINK_MAP = 2,
    /* front -> worker: forget it. Sent only when no job uses it. Answer: LINK_UNMAPPED. */
    LINK_UNMAP = 3,
    /* front -> worker: a cubin (memfd) under a number. Answer: LINK_LOADED. */
    LINK_LOAD = 4,
    LINK_UNLOAD = 5, /* front -> worker: no answer */
    /* front -> worker: finish what was taken, then exit 0. No answer. */
    LINK_QUIT = 6,
    LINK_MAPPED = 7,
    LINK_UNMAPPED = 8,
    LINK_LOADED = 9,
    /* worker -> front: the device is lost; the worker exits after this. `fault` says why. */
    LINK_LOST = 10,
};

enum link_memory_kind {
    LINK_MEMORY_HOST = 1,           /* a memfd, mapped shared (and registered with CUDA) */
    LINK_MEMORY_DEVICE_CREATE = 2,  /* allocate; the answer carries the new descriptor */
    LINK_MEMORY_DEVICE_IMPORT = 3,  /* the descriptor of an earlier _CREATE */
    LINK_MEMORY_DEVICE_FOREIGN = 4, /* a client's descriptor: believe nothing about it */
    LINK_MEMORY_DEVICE_IPC = 5,     /* a client's legacy handle, without a descriptor */
};

enum link_device_kind {
    LINK_DEVICE_CPU = 1,
    LINK_DEVICE_CUDA = 2,
};

struct link_device {
    uint32_t kind;                         /* enum link_device_kind */
    uint32_t compute_major, compute_minor; /* 9, 0 on an H200; 0, 0 for the CPU */
    uint32_t multiprocessors;              /* SMs; threads for the CPU */
    uint32_t shared_memory_per_block;      /* bytes, opt-in maximum; 0 for the CPU */
    uint32_t driver_version;               /* as cuDriverGetVersion: 13000; 0 for the CPU */
    uint64_t memory;                       /* bytes in all */
    uint64_t l2_cache;                     /* bytes */
    uint32_t clock_khz, memory_clock_khz, memory_bus_bits;
    uint32_t allocation_unit; /* device memory comes in multiples of so many bytes */
    char name[96];            /* "NVIDIA H200", the CPU's model name */
    char uuid[64];            /* "GPU-...", empty for the CPU */
    char driver[64]; /* "CUDA 13.0 driver", the BLAS library's own description for the CPU */
    char note[160];  /* why `auto` fell back to the CPU; empty otherwise */
};

/* Elements that one tensor copy moves; 0: the kernel takes no tensor map of the operand. */
struct link_box {
    uint32_t columns, rows;
};

#define LINK_IPC_HANDLE 64 /* bytes of a legacy handle */

#define LINK_BOXES 4 /* A, B, C, D */

struct link_message {
    uint32_t kind;
    uint32_t memory_kind;   /* LINK_MAP: enum link_memory_kind */
    uint64_t id;            /* buffer or kernel number, chosen by the front */
    uint64_t size;          /* LINK_MAP: bytes (the worker may round up). LINK_LOAD: cubin bytes */
    uint64_t address;       /* LINK_MAPPED: base address for jobs */
    uint32_t threads;       /* LINK_LOAD: CTA size */
    uint32_t shared_memory; /* LINK_LOAD: dynamic shared memory of a CTA, bytes */
    uint32_t ctas_per_multiprocessor; /* LINK_LOAD: what the configuration was made for */
    uint32_t tile_m, tile_n;          /* LINK_LOAD: for the grid size */
    uint32_t writable;                /* LINK_MAP host, foreign: 0 maps read-only */
    char configuration[128];          /* LINK_LOAD: canonical text, for logs */
    char entry[64];                   /* LINK_LOAD: the kernel's name in the cubin */
    struct link_device device;        /* LINK_HELLO */
    struct fault fault;               /* answers: status OK, or what went wrong */
    uint32_t cluster_m, cluster_n;    /* LINK_LOAD: CTAs of a cluster; 0: 1 */
    uint32_t cluster_k;               /* LINK_LOAD: of them, those of one tile; 0: 1 */
    uint32_t has_cta_per_tile;        /* LINK_LOAD: 0: CTAs walk over the tiles */
    uint32_t begins_early; /* LINK_LOAD: the kernel waits for the grid before it by itself */
    uint32_t repacks; /* LINK_LOAD: the cubin has a kernel that copies inputs before the product */
    uint32_t leaves_parts; /* LINK_LOAD: the cubin has a kernel that adds what the product leaves */
    struct link_box box[LINK_BOXES]; /* LINK_LOAD */
    uint64_t offset;                 /* LINK_MAP foreign, ipc: where in it the memory begins */
    uint64_t allocation;             /* LINK_MAP foreign: bytes of the whole, in whole units */
    uint8_t handle[LINK_IPC_HANDLE]; /* LINK_MAP ipc */
};
