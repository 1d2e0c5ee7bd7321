"""Arrays of other libraries, taken without a copy and without importing any of them.

DLPack is read here rather than by numpy.from_dlpack(), which knows no bf16 and hands out read-only
arrays. The capsule is not consumed but kept: its owner frees the memory when the last array on it
is gone.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple, Optional

import numpy as np

from ._elements import Element, element_of
from ._errors import InvalidArgument, Unsupported

_CPU, _CUDA, _CUDA_HOST = 1, 2, 3
_HOST_DEVICES = (_CPU, _CUDA_HOST)


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


# (code, bits) of DLDataType
_TYPES: dict[tuple[int, int], tuple[np.dtype, Element]] = {
    (0, 8): (np.dtype(np.int8), Element.INT8),
    (0, 32): (np.dtype(np.int32), Element.INT32),
    (2, 16): (np.dtype(np.float16), Element.FP16),
    (2, 32): (np.dtype(np.float32), Element.FP32),
    (2, 64): (np.dtype(np.float64), Element.FP64),
    (4, 16): (np.dtype(np.uint16), Element.BF16),
}

_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype = ctypes.c_void_p
_pointer_of.argtypes = [ctypes.py_object, ctypes.c_char_p]


class HostArray(NamedTuple):
    """`element` None: the numpy type is none of ours and says so itself, or needs a dtype."""

    array: np.ndarray
    element: Optional[Element]


class _Capsule:
    """Owner of memory that came through DLPack; numpy reads __array_interface__ from it."""

    def __init__(self, capsule: Any, interface: dict[str, Any]) -> None:
        self.capsule = capsule
        self.__array_interface__ = interface


def _from_capsule(capsule: Any, argument: str) -> HostArray:
    tensor = _DLTensor.from_address(_pointer_of(capsule, b"dltensor"))
    known = _TYPES.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    if known is None:
        raise Unsupported(
            f"elements of {tensor.bits} bits with DLPack code {tensor.code} are none of bf16, "
            "fp16, fp32, fp64, int8, int32",
            argument,
        )
    dtype, element = known
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    strides = None
    if tensor.strides:
        strides = tuple(tensor.strides[i] * dtype.itemsize for i in range(tensor.ndim))
    if 0 in shape:  # there may be no address
        return HostArray(np.empty(shape, dtype), element)
    interface = {
        "version": 3,
        "shape": shape,
        "strides": strides,
        "typestr": dtype.str,
        "data": ((tensor.data or 0) + tensor.byte_offset, False),
    }
    return HostArray(np.asarray(_Capsule(capsule, interface)), element)


def _from_dlpack(value: Any, argument: str) -> HostArray:
    kind = int(value.__dlpack_device__()[0])
    if kind not in _HOST_DEVICES:
        what = "CUDA memory" if kind == _CUDA else f"memory of DLPack device type {kind}"
        raise _no_device_memory(what, argument)
    try:
        capsule = value.__dlpack__()
    except (BufferError, RuntimeError, TypeError) as error:
        raise InvalidArgument(f"the array refuses to be exported: {error}", argument) from error
    return _from_capsule(capsule, argument)


def _no_device_memory(what: str, argument: str) -> Unsupported:
    return Unsupported(
        f"{what} of this process cannot be given to the daemon yet; pass a host array, or upload "
        "into connection.device_buffer()",
        argument,
    )


def as_host(value: Any, argument: str) -> HostArray:
    """Any array in host memory. Only what is no array (a list, a number) is copied."""
    if isinstance(value, np.ndarray):
        return HostArray(value, element_of(value.dtype))
    if hasattr(value, "__dlpack_device__"):
        return _from_dlpack(value, argument)
    if hasattr(value, "__cuda_array_interface__"):
        raise _no_device_memory("CUDA memory", argument)
    array = np.asarray(value)
    if array.dtype == object:
        raise InvalidArgument(f"{type(value).__name__} is not an array of numbers", argument)
    return HostArray(array, element_of(array.dtype))
