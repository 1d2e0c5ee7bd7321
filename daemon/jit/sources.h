/*
 * The kernel files: embedded in the binary, or read from a directory for people who work on them.
 * Names are relative to kernels_src/, with '/', in sorted order.
 */
#pragma once

#include "../core/std.h"

struct source_file {
    const char *name; /* "ptx/mbarrier.cuh" */
    const char *text; /* zero-terminated */
    size_t size;      /* without the zero */
};

struct sources {
    struct source_file *files;
    size_t count;
    bool is_embedded;
};

#define SOURCES_NULL ((struct sources){0})

/* `directory` NULL: the embedded files. -errno when the directory cannot be read; SOURCES_E_EMPTY
 * when it holds no kernel file. */
int sources_open(struct sources *sources, const char *directory);
void sources_deinit(struct sources *sources);
const struct source_file *sources_find(const struct sources *sources, const char *name);

enum {
    SOURCES_E_EMPTY = 1,
};
