/*
 * What a running daemon says of itself, and the head of the output of whatever asks it.
 */
#pragma once

#include "client.h"

/* 0, or EXIT_NO_DAEMON with a line on stderr. */
int ask_connect(const char *socket, gemmd **ret);

/* From its status: a number ("worker", "pid"; group NULL: top level), or -1; a text, or "". */
double ask_number(gemmd *connection, const char *group, const char *name);
void ask_text(gemmd *connection, const char *group, const char *name, char ret[96]);

/* The same from a status that is there already. */
double ask_number_in(const char *json, const char *group, const char *name);

/* bench_print_facts() with its device and drivers. */
void ask_print_facts(gemmd *connection);
