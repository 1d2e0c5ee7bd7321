/*
 * Every configuration of a family, on every shape it can compute, straight through the CUDA
 * backend: device operands and staged host operands in turn, against the reference in double.
 *
 * What no kernel may read is NaN (padding, unused operands), what none may write is watched (the
 * bytes of D's memory that belong to no element, and a margin behind it).
 */
#pragma once

#include "../../daemon/plan/config.h"

/* Inside a Criterion test. Skips it where the device has no kernel of the family. */
void kernel_cases_run(enum config_family family);
/* One product with this configuration, `times` times: always the same bits. */
void kernel_cases_repeat(const char *configuration, uint32_t splits, int times);
/* Chains of products launched one behind the other, each with what one of the three before it wrote
 * as its A: the same bits as when each waits for the end of all others. */
void kernel_cases_chain(const char *configuration, uint32_t splits);
