/*
 * Copies between plain memory and the wire's layout. See matrix.h.
 */
#include "matrix.h"

#include <string.h>

#define ROW_ALIGNMENT 16u /* bytes: what every kernel family loads at full speed */

/* Elements of one item, from its first to one past its last. */
static uint64_t item_elements(const struct matrix *matrix)
{
    return (matrix->rows - 1) * matrix->ld + matrix->columns;
}

uint64_t matrix_span(const struct matrix *matrix)
{
    return ((matrix->items - 1) * matrix->stride + item_elements(matrix)) * matrix->element;
}

/* Items share addresses: windows of one array, one item for all, heads side by side in a row. */
static bool items_interleave(const struct matrix *matrix)
{
    return matrix->items > 1 && matrix->stride < item_elements(matrix);
}

struct matrix matrix_for_wire(const struct matrix *matrix)
{
    struct matrix wire = *matrix;
    uint64_t dense;

    /* Never more elements than the span has, so this cannot overflow. */
    if (items_interleave(matrix))
        return wire;
    dense = matrix->items * matrix->rows * matrix->columns * matrix->element;
    if (matrix_span(matrix) / 2 <= dense)
        return wire;
    wire.ld = (matrix->columns * matrix->element + ROW_ALIGNMENT - 1) / ROW_ALIGNMENT *
              ROW_ALIGNMENT / matrix->element;
    wire.stride = wire.rows * wire.ld;
    return wire;
}

static void copy_item(const struct matrix *to_shape,
                      uint8_t *to,
                      const struct matrix *from_shape,
                      const uint8_t *from)
{
    size_t element = to_shape->element;
    size_t row = (size_t)to_shape->columns * element;

    if (to_shape->ld == to_shape->columns && from_shape->ld == from_shape->columns) {
        memcpy(to, from, (size_t)to_shape->rows * row);
        return;
    }
    for (uint64_t i = 0; i < to_shape->rows; i++)
        memcpy(to + i * to_shape->ld * element, from + i * from_shape->ld * element, row);
}

static void copy_items(const struct matrix *to_shape,
                       uint8_t *to,
                       const struct matrix *from_shape,
                       const uint8_t *from)
{
    size_t element = to_shape->element;

    for (uint64_t i = 0; i < to_shape->items; i++)
        copy_item(to_shape, to + i * to_shape->stride * element, from_shape,
                  from + i * from_shape->stride * element);
}

void matrix_gather(const struct matrix *wire,
                   void *to,
                   const struct matrix *caller,
                   const void *from)
{
    /* One copy of what the items share: a million windows of one array are its size, not theirs. */
    if (items_interleave(caller))
        memcpy(to, from, matrix_span(caller));
    else
        copy_items(wire, to, caller, from);
}

void matrix_scatter(const struct matrix *caller,
                    void *to,
                    const struct matrix *wire,
                    const void *from)
{
    copy_items(caller, to, wire, from);
}
