/*
 * The front's settings: command line, else environment, else configuration file, else default. One
 * table in options.c gives the parser, the names in the environment and in the file's [daemon], and
 * the text of --help. The file's other sections say what uids may have (quota_rules.h).
 *
 * Owner: front_main(). Strings point into argv and the environment, those of the file are owned.
 */
#pragma once

#include "../core/log.h"
#include "../core/socket_path.h"
#include "../core/std.h"
#include "quota_rules.h"
#include "settings_file.h"
#include "tuner_mode.h"
#include <sys/types.h>

#define OPTIONS_CONFIG_DEFAULT "/etc/gemmd/gemmd.conf"
#define OPTIONS_MAX            20          /* rows of the table */
#define OPTIONS_SCRATCH_LEAST  (16u << 20) /* panels of any k that is in use fit into it */

struct option_weight {
    uid_t uid;
    uint32_t weight;
};

struct options {
    const char *config; /* the file; NULL: OPTIONS_CONFIG_DEFAULT, if there is one */
    const char *socket;
    const char *device; /* "auto", "cpu", "cuda", "cuda:N" or "GPU-<uuid>" */
    const char *cache;  /* NULL: by the rules of jit/cache.h */
    uint64_t cache_bytes;
    const char *kernels; /* NULL: the embedded files */
    const char *state;   /* NULL: by the rules of jit/cache_disk.h */
    enum tuner_mode tune;
    mode_t mode; /* of the socket */
    enum log_level log_level;
    double compile_seconds;
    uint64_t compile_bytes;
    double job_seconds;                           /* 0: as the device has it (queue.h) */
    uint64_t scratch_bytes;                       /* 0: as the worker has it (cuda_panels.h) */
    uint64_t compilers;                           /* children at most */
    struct option_weight weights[QUOTA_UIDS_MAX]; /* not the file's */
    size_t weight_count;
    struct quota_rules rules; /* the file's, with these weights */
    int ready_fd;             /* gets one byte and is closed once requests are served; -1: none */
    char socket_buffer[SOCKET_PATH_MAX + 1];
    char *owned[OPTIONS_MAX]; /* the file's texts, by row of the table; NULL: not in it */
};

enum {
    OPTIONS_E_HELP = 1,
    OPTIONS_E_VERSION,
    OPTIONS_E_USAGE, /* ret_message says what was given and what is allowed */
};

#define OPTIONS_MESSAGE_MAX SETTINGS_MESSAGE_MAX

int options_parse(struct options *ret_options,
                  int argc,
                  char *const *argv,
                  char ret_message[OPTIONS_MESSAGE_MAX]);
/* Also after a failed options_parse(). */
void options_deinit(struct options *options);
/* Reads the file again: what it says of uids now. The rest of it is checked, and holds from the
 * next start. On failure the message says why. */
int options_reload(const struct options *options,
                   struct quota_rules *ret_rules,
                   char ret_message[OPTIONS_MESSAGE_MAX]);
/* The text of --help, on stdout. */
void options_print_help(void);
