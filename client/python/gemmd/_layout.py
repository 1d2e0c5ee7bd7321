"""Where a stack of matrices lies, in the words of the C library: leading dimension, stride,
transposed or not. Pure arithmetic on shapes and strides; nothing is read or copied here."""

from __future__ import annotations

from typing import NamedTuple, Optional, Sequence


class Layout(NamedTuple):
    """`transposed`: columns lie together. `ld`, `stride`: elements, as gemmd_operand has them."""

    transposed: bool
    ld: int
    stride: int


def _orientation(
    rows: int, columns: int, row_step: int, column_step: int
) -> Optional[int]:
    """The leading dimension of rows that lie together, None when they do not. The step of an axis
    of one is never taken, so any will do."""
    if columns > 1 and column_step != 1:
        return None
    if rows <= 1:
        return max(columns, 1)
    return row_step if row_step >= max(columns, 1) else None


def layout_of(
    shape: Sequence[int],
    strides: Sequence[int],
    itemsize: int,
    transposed: Optional[bool] = None,
) -> Optional[Layout]:
    """Of (batch, rows, columns) with strides in bytes; None when it cannot be said and the caller
    must copy. `transposed` asks for one orientation; else rows are preferred."""
    batch, rows, columns = shape
    if 0 in shape:  # nothing is addressed, and the steps say nothing
        return Layout(bool(transposed), max(rows if transposed else columns, 1), 0)
    if any(step % itemsize for step, length in zip(strides, shape) if length > 1):
        return None
    batch_step, row_step, column_step = (step // itemsize for step in strides)
    if batch > 1 and batch_step < 0:
        return None
    stride = batch_step if batch > 1 else 0
    if transposed is not True:
        ld = _orientation(rows, columns, row_step, column_step)
        if ld is not None:
            return Layout(False, ld, stride)
    if transposed is not False:
        ld = _orientation(columns, rows, column_step, row_step)
        if ld is not None:
            return Layout(True, ld, stride)
    return None


def is_writable(layout: Layout, shape: Sequence[int]) -> bool:
    """Whether the results of a batch are apart in a way that the daemon accepts: one after the
    other, or side by side within a row."""
    batch, rows, columns = shape
    if batch <= 1:
        return True
    if layout.transposed:
        rows, columns = columns, rows
    if layout.stride >= (rows - 1) * layout.ld + columns:
        return True
    return layout.stride >= columns and (batch - 1) * layout.stride + columns <= layout.ld
