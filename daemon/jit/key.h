/*
 * Cache key of a cubin: XXH3-128 over the format version, every kernel file's name and bytes, the
 * canonical options, the compiler's version and build, and the architecture. No paths, no driver
 * version, no time.
 */
#pragma once

#include "../core/std.h"
#include "../plan/config.h"
#include "sources.h"

#define KEY_FORMAT_VERSION 1
#define KEY_TEXT_SIZE      33 /* 32 hex digits and the zero */

struct key {
    uint8_t bytes[16];
};

/* The canonical options of a compile, in a fixed order: what the key covers and what NVRTC is
 * given. Pointers lie in the struct. */
#define KEY_OPTIONS_MAX (CONFIG_DEFINES_MAX + 8)

struct key_options {
    struct config_defines defines;
    char architecture[CONFIG_DEFINE_MAX];
    char optimization[CONFIG_DEFINE_MAX];
    size_t count;
    const char *text[KEY_OPTIONS_MAX];
};

/* Not copyable: `text` points into the struct. The configuration has a kernel (is not CPU). */
void key_options_init(struct key_options *options, const struct config *config);

/* What NVRTC says it is: nvrtcVersion and the library's build. The front learns it from the compile
 * role, or from the newest use record when there is no NVRTC on this machine. */
struct compiler_identity {
    uint32_t major, minor;
    char build[64];
};

void key_compute(struct key *ret_key,
                 const struct sources *sources,
                 const struct config *config,
                 const struct compiler_identity *compiler);
bool key_equal(const struct key *a, const struct key *b);
void key_to_text(const struct key *key, char ret_text[KEY_TEXT_SIZE]);
bool key_from_text(const char *text, struct key *ret_key);
