/*
 * One command of this program as a process of its own, with a bound on its time: what it prints is
 * copied, and its figures are kept.
 */
#pragma once

#include "figures.h"

#include <stdio.h>

#define PART_WHY 160

/* `arguments`: NULL-ended, without the program's name. Its exit status, or -1 when it was late or
 * crashed; when that is not 0, ret_why says what was wrong. What it had printed counts anyway. */
int part_run(char *const *arguments,
             double limit,
             FILE *copy,
             struct figures *figures,
             char ret_why[PART_WHY]);
