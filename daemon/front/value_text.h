/*
 * Values as people write them on command lines and in files, and what to say when they mistype.
 *
 * Pure functions.
 */
#pragma once

#include "../core/std.h"

/* Digits only: no sign, no space, nothing after them. */
bool number_from_text(const char *text, int base, uint64_t max, uint64_t *ret_number);
/* "512M", "2G", "1048576". */
bool size_from_text(const char *text, uint64_t *ret_size);
bool switch_from_text(const char *text, bool *ret_is_on); /* "yes" or "no" */

/* How many letters must be put in, left out or replaced to make one of the other. */
size_t text_distance(const char *a, const char *b);
