"""Element types: the C library's numbers, their names, their numpy types.

numpy has no bf16. Where ml_dtypes is installed its bfloat16 is used, else the bit patterns travel
in uint16 arrays and the caller says "bf16".
"""

from __future__ import annotations

import enum
import functools
from typing import Any, Optional, Union

import numpy as np

from ._errors import InvalidArgument

DTypeLike = Union[str, np.dtype, type, None]


class Element(enum.IntEnum):
    BF16 = 1
    FP16 = 2
    FP32 = 3
    FP64 = 4
    INT8 = 5
    INT32 = 6


_NUMPY_NAMES = {
    "bfloat16": Element.BF16,
    "float16": Element.FP16,
    "float32": Element.FP32,
    "float64": Element.FP64,
    "int8": Element.INT8,
    "int32": Element.INT32,
}
_NAMES = {element.name.lower(): element for element in Element} | _NUMPY_NAMES
_STORAGE = {_NUMPY_NAMES[name]: np.dtype(name) for name in _NUMPY_NAMES if name != "bfloat16"}
_ALLOWED = "bf16, fp16, fp32, fp64, int8 and int32 (or their numpy types)"


@functools.lru_cache(maxsize=None)
def _bfloat16() -> np.dtype:
    try:
        import ml_dtypes
    except ImportError:
        return np.dtype(np.uint16)
    bfloat16: np.dtype = np.dtype(ml_dtypes.bfloat16)
    return bfloat16


def storage(element: Element) -> np.dtype:
    """The numpy type of new arrays."""
    return _bfloat16() if element is Element.BF16 else _STORAGE[element]


@functools.lru_cache(maxsize=256)  # numpy makes the name anew each time
def element_of(dtype: np.dtype) -> Optional[Element]:
    """What arrays of that type hold; None when it is none of ours. uint16 alone says nothing."""
    return _NUMPY_NAMES.get(dtype.name)


def parse(spec: Any, argument: str) -> Element:
    """From what the caller names: "bf16", "float32", numpy.float32, ml_dtypes.bfloat16."""
    if isinstance(spec, str) and spec in _NAMES:
        return _NAMES[spec]
    try:
        element = element_of(np.dtype(spec))
    except TypeError:
        element = None
    if spec is None or element is None:
        raise InvalidArgument(f"{spec!r} is not an element type; allowed are {_ALLOWED}", argument)
    return element


def holds(dtype: np.dtype, element: Element) -> bool:
    """Whether arrays of that type can be taken as they are for the element."""
    if not dtype.isnative:
        return False
    return element_of(dtype) is element or (element is Element.BF16 and dtype == np.uint16)


def to_bf16(values: Any) -> np.ndarray:
    """Rounds to nearest even; NaN stays NaN. ml_dtypes.bfloat16 where installed, else bits."""
    single = np.ascontiguousarray(values, dtype=np.float32).reshape(np.shape(values))
    bits = single.view(np.uint32)
    rounded = (bits + (0x7FFF + (bits >> 16 & 1))) >> 16  # the carry runs up to Inf
    quiet = bits >> 16 | 0x40  # a payload in the low half only would be cut to Inf
    return np.where(np.isnan(single), quiet, rounded).astype(np.uint16).view(_bfloat16())


def from_bf16(array: np.ndarray) -> np.ndarray:
    """float32 values of an array of bf16, whichever way it is stored."""
    stored = np.asarray(array)
    if not holds(stored.dtype, Element.BF16):
        raise InvalidArgument(f"{stored.dtype.name} is not how bf16 is stored", "array")
    bits = stored.view(np.uint16).astype(np.uint32)
    return (bits << 16).view(np.float32)


def convert(array: np.ndarray, element: Element) -> np.ndarray:
    if holds(array.dtype, element):
        return array
    if element is Element.BF16:
        return to_bf16(array)
    if element_of(array.dtype) is Element.BF16:
        array = from_bf16(array)
    return array.astype(_STORAGE[element])
