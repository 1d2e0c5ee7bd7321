/*
 * The front's settings: command line, else environment, else default. One table in options.c
 * gives the parser, the environment names and the text of --help.
 *
 * Owner: front_main(). Strings point into argv and the environment.
 */
#pragma once

#include "../core/log.h"
#include "../core/socket_path.h"
#include "../core/std.h"
#include "quota.h"
#include <sys/types.h>

struct options {
    const char *socket;
    const char *device; /* "auto", "cpu", "cuda", "cuda:N" or "GPU-<uuid>" */
    const char *cache;  /* NULL: by the rules of jit/cache.h */
    uint64_t cache_bytes;
    const char *kernels; /* NULL: the embedded files */
    mode_t mode;         /* of the socket */
    enum log_level log_level;
    double compile_seconds;
    uint64_t compile_bytes;
    double job_seconds; /* 0: as the device has it (queue.h) */
    uint64_t compilers; /* children at most */
    struct quota_weight weights[QUOTA_WEIGHTS_MAX];
    size_t weight_count;
    int ready_fd; /* gets one byte and is closed once requests are served; -1: none */
    char socket_buffer[SOCKET_PATH_MAX + 1];
};

enum {
    OPTIONS_E_HELP = 1,
    OPTIONS_E_VERSION,
    OPTIONS_E_USAGE, /* ret_message says what was given and what is allowed */
};

#define OPTIONS_MESSAGE_MAX 256

int options_parse(struct options *ret_options,
                  int argc,
                  char *const *argv,
                  char ret_message[OPTIONS_MESSAGE_MAX]);
/* The text of --help, on stdout. */
void options_print_help(void);
