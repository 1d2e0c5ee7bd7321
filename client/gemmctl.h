/*
 * gemmctl: what its files share.
 *
 * A command is a row of the table in gemmctl.c; its function gets argv with its own name as argv[0]
 * and returns an exit status. struct gemmctl lives in main() and is passed down; one thread.
 */
#pragma once

#include <getopt.h>
#include <stdio.h>

#include "../daemon/core/dtype.h"
#include "../daemon/core/problem.h"
#include "../daemon/core/std.h"
#include "gemmd.h"

enum ctl_exit {
    CTL_OK = 0,
    CTL_FAILED = 1,
    CTL_USAGE = 2,
    CTL_NO_DAEMON = 3, /* nobody answers, or the connection was lost */
};

struct command;

struct gemmctl {
    const struct command *command; /* the one that runs */
    const char *socket;            /* NULL: the default path */
    bool progress;                 /* stderr is a terminal, or --progress */
    bool progress_shown;           /* a progress line is on the terminal now */
    gemmd *connection;             /* owned; opened by ctl_connect() */
};

struct command {
    const char *name;
    int (*run)(struct gemmctl *ctl, int argc, char **argv);
    const char *summary;
    const char *usage; /* what follows "gemmctl NAME" */
    const char *help;  /* option lines */
};

int ctl_gemm(struct gemmctl *ctl, int argc, char **argv);
int ctl_status(struct gemmctl *ctl, int argc, char **argv);
int ctl_stats(struct gemmctl *ctl, int argc, char **argv);
int ctl_cache(struct gemmctl *ctl, int argc, char **argv);
int ctl_selftest(struct gemmctl *ctl, int argc, char **argv);
int ctl_explain(struct gemmctl *ctl, int argc, char **argv);
int ctl_tune(struct gemmctl *ctl, int argc, char **argv);
int ctl_compile(struct gemmctl *ctl, int argc, char **argv);

/* --- options (gemmctl_options.c) ------------------------------------------------------------- */

/* Long options of every command start here; the common ones are CTL_COMMON_OPTIONS. */
enum {
    CTL_OPTION_END = -1,
    CTL_OPTION_WRONG = -2, /* refused and explained: leave with CTL_USAGE */
    CTL_OPTION_SOCKET = 1000,
    CTL_OPTION_PROGRESS,
    CTL_OPTION_HELP,
    CTL_OPTION_VERSION,
    CTL_OPTION_OWN, /* a command's own options count from here */
};

#define CTL_COMMON_OPTIONS                                                                         \
    {"socket", required_argument, NULL, CTL_OPTION_SOCKET},                                        \
        {"progress", no_argument, NULL, CTL_OPTION_PROGRESS},                                      \
        {"help", no_argument, NULL, CTL_OPTION_HELP},                                              \
    {                                                                                              \
        NULL, 0, NULL, 0                                                                           \
    }

/* The next option, with its value in `optarg`; takes the common ones itself. --help prints and
 * ends the program, so it belongs before anything is owned. */
int ctl_option(struct gemmctl *ctl, int argc, char **argv, const struct option *options);
/* "gemmctl gemm: MESSAGE" and where help is; returns CTL_USAGE. */
int ctl_usage(const struct gemmctl *ctl, const char *format, ...) printf_like(2, 3);
/* The same without the hint; returns CTL_FAILED. */
int ctl_fail(struct gemmctl *ctl, const char *format, ...) printf_like(2, 3);
/* Refuses arguments that no option took; CTL_OK when there are none. */
int ctl_no_more(const struct gemmctl *ctl, int argc, char **argv);

/* Values of options. Each prints what was given and what is allowed, and returns CTL_USAGE. */
int ctl_parse_count(const struct gemmctl *ctl, const char *name, const char *text, int64_t *ret);
int ctl_parse_real(const struct gemmctl *ctl, const char *name, const char *text, double *ret);
int ctl_parse_bytes(const struct gemmctl *ctl, const char *name, const char *text, uint64_t *ret);
int ctl_parse_dtype(const struct gemmctl *ctl, const char *name, const char *text, enum dtype *ret);
/* "90", "9.0", "sm_90", "sm_90a": one of the architectures this version knows. */
int ctl_parse_arch(const struct gemmctl *ctl, const char *text, uint32_t *ret);
/* "nn", "nt", "tn", "tt": A's letter, then B's. */
int ctl_parse_layout(const struct gemmctl *ctl, const char *text, bool *ret_a, bool *ret_b);
int ctl_parse_activation(const struct gemmctl *ctl, const char *text, enum activation *ret);
/* What a bias has a value for: "row" or "column". */
int ctl_parse_axis(const struct gemmctl *ctl, const char *name, const char *text, enum bias *ret);

/* --- help and the daemon (gemmctl.c)
 * ------------------------------------------------------------------ */

void ctl_print_help(const struct gemmctl *ctl);

/* CTL_OK, or CTL_NO_DAEMON with the reason printed. */
int ctl_connect(struct gemmctl *ctl);
/* Prints the connection's last error; the exit status that belongs to it. */
int ctl_daemon_error(struct gemmctl *ctl);

/* A line on stderr that the next one replaces; nothing without `progress`. */
void ctl_progress(struct gemmctl *ctl, const char *format, ...) printf_like(2, 3);
void ctl_progress_end(struct gemmctl *ctl);

double ctl_seconds(void); /* monotonic */

/* Everything of a problem but its memory. The problem's defaults are filled. */
void ctl_product(const struct problem *problem, gemmd_product *ret_product);

/* --- JSON for people (gemmctl_json.c) --------------------------------------------------------- */

/* Prints the daemon's answer as aligned names and values, arrays of maps as tables. False when the
 * text is not JSON. */
bool ctl_print_json(FILE *stream, const char *json);
