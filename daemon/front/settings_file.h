/*
 * A configuration file, read by inih: [sections] of `key = value` lines. A comment begins with # or
 * ; at a line's start, or with a ; after white space. Lines are not continued: inih would take an
 * indented line for more of the value before it, and an indented key is somebody's tidy layout.
 *
 * Reading stops at the first thing that is wrong, and says where.
 *
 * Thread: loop.
 */
#pragma once

#include "../core/std.h"

#define SETTINGS_MESSAGE_MAX 512

/* What the file says. `key` and `value` are NULL when a section begins. False: the message says
 * what is wrong and what is allowed, without file and line. */
typedef bool (*settings_fn)(void *context,
                            const char *section,
                            const char *key,
                            const char *value,
                            char message[SETTINGS_MESSAGE_MAX]);

enum {
    SETTINGS_E_MISSING = 1, /* there is no such file */
    SETTINGS_E_WRONG,       /* unreadable, or something in it: ret_message says what, and where */
};

int settings_read(const char *path,
                  settings_fn take,
                  void *context,
                  char ret_message[SETTINGS_MESSAGE_MAX]);
