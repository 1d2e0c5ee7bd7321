/*
 * A product in double, element by element, as the definition says it.
 */
#pragma once

#include "../../daemon/core/problem.h"

/* Row-major, defaults filled; `at`, where the operands lie, swaps along. */
void naive_normalize(struct problem *problem, bool column_major, void *at[OPERAND_COUNT]);
/* Of a checked, normalized problem. Operands that are not read may be NULL. */
void naive_product(const struct problem *problem, void *const at[OPERAND_COUNT]);
