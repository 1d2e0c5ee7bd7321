/*
 * One line per event, key=value, to stderr with the <N> prefixes that journald understands when
 * stderr is not a terminal. Library code does not log above debug; main, server, session,
 * compiler and worker do.
 *
 * Thread-safe: one write(2) per line.
 */
#pragma once

#include "std.h"

enum log_level {
    LOG_LEVEL_NONE = 0,
    LOG_LEVEL_ERROR = 3,
    LOG_LEVEL_WARNING = 4,
    LOG_LEVEL_INFO = 6,
    LOG_LEVEL_DEBUG = 7,
};

#define LOG_LINE_MAX 1024 /* longer lines are cut and end in "..." */

/* `role` is the process's role, printed in front of each line: "front", "worker", "compile". */
void log_init(const char *role, enum log_level level);
/* For a library, which prints nothing into the programs it is in: unless one calls log_init(). */
void log_silence(void);
/* Accepts "error", "warning", "info", "debug"; false and no change on anything else. */
bool log_level_from_text(const char *text, enum log_level *ret_level);
const char *log_level_name(enum log_level level); /* the text above */
enum log_level log_level(void);
void log_message(enum log_level level, const char *format, ...) printf_like(2, 3);

#define log_error(...)   log_message(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_message(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_info(...)    log_message(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...)   log_message(LOG_LEVEL_DEBUG, __VA_ARGS__)
