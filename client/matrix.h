/*
 * A batch of stored matrices as an address pattern: how plain memory of the caller is laid out,
 * and how it lies in a message or in staging. Rows and columns are those of memory (a column-major
 * matrix appears as its row-major transpose).
 *
 * Bytes between the end of a row and the next row, and between items, belong to the caller: they
 * are neither read nor written, but for inputs whose items overlap.
 */
#pragma once

#include "../daemon/core/std.h"

struct matrix {
    uint64_t rows, columns, items; /* all at least 1 */
    uint64_t ld, stride;           /* elements; stride may be 0 */
    size_t element;                /* bytes */
};

/* Bytes from the first element to one past the last. */
uint64_t matrix_span(const struct matrix *matrix);
/* The layout to travel in: the same, unless more than half of it would be gaps; then rows of 16
 * byte multiples, one after the other. */
struct matrix matrix_for_wire(const struct matrix *matrix);
/* Between the caller's layout and the wire's: matrix_for_wire() of it. */
void matrix_gather(const struct matrix *wire,
                   void *to,
                   const struct matrix *caller,
                   const void *from);
void matrix_scatter(const struct matrix *caller,
                    void *to,
                    const struct matrix *wire,
                    const void *from);
