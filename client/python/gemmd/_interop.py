"""Arrays of other libraries, taken and given without a copy and without importing any of them.

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

CPU, CUDA, _CUDA_HOST, _CUDA_MANAGED = 1, 2, 3, 13
_HOST_DEVICES = (CPU, _CUDA_HOST)
_DEFAULT_STREAM = 1  # of CUDA, in both protocols


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


class DeviceView(NamedTuple):
    """An array in this process's device memory. Steps are bytes. `stream`: has the work on it that
    must be done first; None when there is none."""

    argument: str
    low: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype
    element: Optional[Element]
    stream: Optional[int]
    keep: Any

    @property
    def high(self) -> int:
        """One past the last byte."""
        if 0 in self.shape:
            return self.low
        steps = ((size - 1) * step for size, step in zip(self.shape, self.strides))
        return self.low + sum(steps) + self.dtype.itemsize


def _type_of(tensor: _DLTensor, argument: str) -> tuple[np.dtype, Element]:
    known = _TYPES.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    if known is None:
        raise Unsupported(
            f"elements of {tensor.bits} bits with DLPack code {tensor.code} are none of bf16, "
            "fp16, fp32, fp64, int8, int32",
            argument,
        )
    return known


def _from_capsule(capsule: Any, argument: str) -> HostArray:
    tensor = _DLTensor.from_address(_pointer_of(capsule, b"dltensor"))
    dtype, element = _type_of(tensor, argument)
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


def _export(value: Any, argument: str, **options: Any) -> Any:
    try:
        return value.__dlpack__(**options)
    except (BufferError, RuntimeError, TypeError) as error:
        raise InvalidArgument(f"the array refuses to be exported: {error}", argument) from error


def _from_dlpack(value: Any, argument: str) -> HostArray:
    kind = int(value.__dlpack_device__()[0])
    if kind not in _HOST_DEVICES:
        what = "CUDA memory" if kind == CUDA else f"memory of DLPack device type {kind}"
        raise _no_device_memory(what, argument)
    return _from_capsule(_export(value, argument), argument)


def _no_device_memory(what: str, argument: str) -> Unsupported:
    return Unsupported(
        f"{what} cannot be read here; pass a host array, or use connection.device_buffer()", argument
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


# --- device memory, in -----------------------------------------------------------------------


def _dense(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    steps = [itemsize]
    for size in reversed(shape[1:]):
        steps.append(steps[-1] * max(size, 1))
    return tuple(reversed(steps)) if shape else ()


def _view_of_dlpack(value: Any, argument: str) -> DeviceView:
    """Asked for on the default stream, which then has all that comes before."""
    capsule = _export(value, argument, stream=_DEFAULT_STREAM)
    tensor = _DLTensor.from_address(_pointer_of(capsule, b"dltensor"))
    dtype, element = _type_of(tensor, argument)
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    strides = _dense(shape, dtype.itemsize)
    if tensor.strides:
        strides = tuple(tensor.strides[i] * dtype.itemsize for i in range(tensor.ndim))
    low = (tensor.data or 0) + tensor.byte_offset
    return DeviceView(argument, low, shape, strides, dtype, element, _DEFAULT_STREAM, capsule)


def _view_of_interface(value: Any, argument: str) -> DeviceView:
    """An interface without a stream says nothing of the work under way: its own default stream
    stands for it."""
    interface = value.__cuda_array_interface__
    if interface.get("mask") is not None:
        raise Unsupported("masked arrays have no place in products", argument)
    dtype = np.dtype(interface["typestr"])
    shape = tuple(interface["shape"])
    strides = interface.get("strides") or _dense(shape, dtype.itemsize)
    is_silent = interface.get("version", 0) < 3 or "stream" not in interface
    stream = _DEFAULT_STREAM if is_silent else interface["stream"]
    low = int(interface["data"][0] or 0)
    return DeviceView(argument, low, shape, strides, dtype, element_of(dtype), stream, value)


def as_device(value: Any, argument: str) -> Optional[DeviceView]:
    """None when the value is no array in CUDA memory. DLPack knows bf16, so it is asked first."""
    if isinstance(value, np.ndarray):
        return None
    if hasattr(value, "__dlpack_device__"):
        is_cuda = int(value.__dlpack_device__()[0]) in (CUDA, _CUDA_MANAGED)
        return _view_of_dlpack(value, argument) if is_cuda else None
    if hasattr(value, "__cuda_array_interface__"):
        return _view_of_interface(value, argument)
    return None


# --- device memory, out ----------------------------------------------------------------------


class _DLManagedTensor(ctypes.Structure):
    pass


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_DLManagedTensor._fields_ = [
    ("tensor", _DLTensor),
    ("context", ctypes.c_void_p),
    ("deleter", _Deleter),
]

# Tensors that others hold, by their records' addresses: the record, its arrays, and the memory.
_given: dict[int, tuple[Any, ...]] = {}


@_Deleter
def _take_back(address: Optional[int]) -> None:
    _given.pop(address or 0, None)


# A capsule that is dying has no references, and ctypes.py_object would count one: plain addresses.
_Destructor = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi)
)
_pointer_in = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_new_capsule = ctypes.PYFUNCTYPE(
    ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, _Destructor
)(("PyCapsule_New", ctypes.pythonapi))


@_Destructor
def _discard(capsule: Optional[int]) -> None:
    """Of a capsule that nobody consumed: those who do rename it."""
    if _is_valid(capsule, b"dltensor"):
        _take_back(_pointer_in(capsule, b"dltensor"))


_KINDS = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}


def new_capsule(
    device: tuple[int, int],
    address: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    dtype: np.dtype,
    element: Optional[Element],
    owner: Any,
) -> Any:
    """A DLPack capsule on memory that `owner` keeps; bf16 whichever way numpy stores it."""
    code = 4 if element is Element.BF16 else _KINDS.get(dtype.kind)
    if code is None:
        raise BufferError(f"DLPack has no name for elements of {dtype.name}")
    Sizes = ctypes.c_int64 * max(len(shape), 1)
    sizes = Sizes(*shape)
    steps = Sizes(*(step // dtype.itemsize for step in strides))
    record = _DLManagedTensor(
        _DLTensor(address, *device, len(shape), code, 8 * dtype.itemsize, 1, sizes, steps, 0),
        None,
        _take_back,
    )
    _given[ctypes.addressof(record)] = (record, sizes, steps, owner)
    return _new_capsule(ctypes.addressof(record), b"dltensor", _discard)
