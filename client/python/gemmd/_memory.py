"""Memory that products use without a copy: host buffers as numpy arrays, device buffers."""

from __future__ import annotations

import ctypes
import math
from typing import TYPE_CHECKING, Any, Optional, Union

import numpy as np

from ._elements import Element, convert, element_of, holds
from ._errors import Error, InvalidArgument, Unsupported
from ._exchange import Exported, Mapping, wait_for_producer
from ._interop import CUDA, DeviceView, as_host, new_capsule

if TYPE_CHECKING:
    from ._connection import Connection
    from ._session import Session

Shape = Union[int, tuple[int, ...]]
BYTES_MAX = 2**63 - 1  # of an array; ctypes would cut what is larger


def normal_shape(shape: Any) -> tuple[int, ...]:
    try:
        sizes = tuple(int(size) for size in (shape if np.iterable(shape) else (shape,)))
    except (TypeError, ValueError):
        raise InvalidArgument(f"{shape!r} is not a shape", "shape") from None
    if any(size < 0 for size in sizes):
        raise InvalidArgument(f"{sizes} has a negative size", "shape")
    return sizes


def bytes_of(shape: tuple[int, ...], dtype: np.dtype) -> int:
    size = math.prod(shape) * dtype.itemsize
    if size > BYTES_MAX:
        raise InvalidArgument(f"{shape} of {dtype.name} takes {size} bytes", "shape")
    return size


class Memory:
    """Owner of one buffer. Arrays hold it, so that it lives as long as the last of them."""

    def __init__(self, session: Session, mapping: Mapping) -> None:
        self.session = session
        self.mapping = mapping
        self.exported: Optional[Exported] = None  # exchange.export()
        self._is_freed = False

    def free(self) -> None:
        if not self._is_freed:
            self._is_freed = True
            self.session.discard(self.mapping.buffer)

    def check(self) -> None:
        if self._is_freed:
            raise InvalidArgument("the buffer was freed", "buffer")

    def __del__(self) -> None:
        self.free()


class _HostMemory(Memory):
    """The base object of numpy arrays on a mapped buffer."""

    def __init__(self, session: Session, mapping: Mapping, is_writable: bool) -> None:
        super().__init__(session, mapping)
        self.__array_interface__ = {
            "version": 3,
            "shape": (mapping.size,),
            "typestr": "|u1",
            "data": (mapping.address, not is_writable),
        }


def memory_of(session: Session, mapping: Mapping, is_writable: bool = True) -> Memory:
    if mapping.address:
        return _HostMemory(session, mapping, is_writable)
    return Memory(session, mapping)


def host_array(memory: Memory, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    whole = np.asarray(memory)
    return whole[: bytes_of(shape, dtype)].view(dtype).reshape(shape)


def _dense_steps(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    steps = [itemsize]
    for size in reversed(shape[1:]):
        steps.append(steps[-1] * max(size, 1))
    return tuple(reversed(steps)) if shape else ()


class DeviceArray:
    """An array in the daemon's device memory: an operand of products, in and out, by reference.

    It has no elements to look at here; upload() and download() copy. Slices and transposes are
    views that share the memory, which lives until free() or the last of them.
    """

    __slots__ = ("connection", "shape", "strides", "dtype", "element", "name", "offset", "_memory")
    __array_ufunc__ = None  # numpy operators leave it alone

    def __init__(
        self,
        connection: Optional[Connection],
        memory: Memory,
        shape: tuple[int, ...],
        dtype: np.dtype,
        element: Optional[Element],
        name: Optional[str] = None,
    ) -> None:
        self.connection = connection
        self.shape = shape
        self.dtype = dtype
        self.element = element
        self.name = name
        self.strides = _dense_steps(shape, dtype.itemsize)  # bytes
        self.offset = 0  # bytes into the buffer
        self._memory = memory

    def _view(self, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> DeviceArray:
        view = DeviceArray(
            self.connection, self._memory, shape, self.dtype, self.element, self.name
        )
        view.offset, view.strides = offset, strides
        return view

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        return bytes_of(self.shape, self.dtype)

    @property
    def mT(self) -> DeviceArray:
        """The transpose of each matrix."""
        if self.ndim < 2:
            raise InvalidArgument("an array of one dimension has no transpose", "array")
        *shape, rows, columns = self.shape
        *strides, row_step, column_step = self.strides
        return self._view(
            self.offset, (*shape, columns, rows), (*strides, column_step, row_step)
        )

    @property
    def T(self) -> DeviceArray:
        if self.ndim != 2:
            raise InvalidArgument(f"{self.ndim} dimensions; .T is for 2, .mT for more", "array")
        return self.mT

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of an array without dimensions")
        return self.shape[0]

    def __getitem__(self, index: Any) -> DeviceArray:
        """Numbers, slices with positive steps, None for a new axis: views as in numpy."""
        offset, axis = self.offset, 0
        shape: list[int] = []
        strides: list[int] = []
        for item in index if isinstance(index, tuple) else (index,):
            if item is None:
                shape.append(1)
                strides.append(0)
                continue
            if axis == self.ndim:
                raise IndexError(f"more indices than the array's {self.ndim} dimensions")
            size, step = self.shape[axis], self.strides[axis]
            axis += 1
            if not isinstance(item, slice):
                offset += range(size)[item] * step  # IndexError as from a list
                continue
            taken = range(size)[item]
            if taken.step < 1:
                raise InvalidArgument(f"the step is {taken.step}; it must be positive", "index")
            offset += taken.start * step if taken else 0
            shape.append(len(taken))
            strides.append(taken.step * step)
        return self._view(
            offset, (*shape, *self.shape[axis:]), (*strides, *self.strides[axis:])
        )

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise TypeError("the elements are in device memory; download() copies them")

    def __repr__(self) -> str:
        name = f", name={self.name!r}" if self.name else ""
        return f"gemmd.DeviceArray(shape={self.shape}, dtype={self.dtype.name}{name})"

    def buffer_in(self, session: Session, argument: str) -> int:
        """The library's handle, for a product on that session."""
        self._memory.check()
        if self._memory.session is not session:
            raise InvalidArgument(
                "the device array belongs to another connection; open it by name on this one",
                argument,
            )
        return self._memory.mapping.buffer

    # --- other libraries --------------------------------------------------------------------

    def _export(self) -> Exported:
        """The memory in this process, after the products under way: those who are given it know
        nothing of them."""
        self._memory.check()
        session = self._memory.session
        session.settle()
        return session.exchange.export(self._memory)

    def __dlpack_device__(self) -> tuple[int, int]:
        exported = self._shared()
        return (exported.kind, exported.ordinal)

    def _shared(self) -> Exported:
        try:
            return self._export()
        except Error as error:
            raise BufferError(str(error)) from error

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: Any = None,
        dl_device: Optional[tuple[int, int]] = None,
        copy: Optional[bool] = None,
    ) -> Any:
        """For torch.from_dlpack() and others: the memory itself, so that what they write is in the
        next product. Needs exportable=True, and write permission. Their work on it must be done
        before a product is submitted by name; where the tensor itself is passed to a product, that
        waits. Products of other processes are theirs to wait for."""
        exported = self._shared()
        device = (exported.kind, exported.ordinal)
        if copy or dl_device not in (None, device):
            raise BufferError("the memory is shared as it lies, not copied")
        return new_capsule(
            device,
            exported.address + self.offset,
            self.shape,
            self.strides,
            self.dtype,
            self.element,
            (self._memory, exported),
        )

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """As __dlpack__(); it has no bf16."""
        exported = self._visible()
        return {
            "version": 3,
            "shape": self.shape,
            "strides": self.strides,
            "typestr": self.dtype.str,
            "data": (exported.address + self.offset, False),
            "stream": None,  # settled
        }

    def _visible(self) -> Exported:
        """AttributeError: the array has no such interface."""
        try:
            exported = self._export()
        except Error as error:
            raise AttributeError(str(error)) from error
        if exported.kind != CUDA:
            raise AttributeError("the daemon's device is the CPU; __dlpack__() shows the memory")
        return exported

    def _is_dense(self) -> bool:
        dense = _dense_steps(self.shape, self.dtype.itemsize)
        return all(a == b for a, b, n in zip(self.strides, dense, self.shape) if n > 1)

    def _span(self) -> int:
        """Bytes from the first element to one past the last."""
        if 0 in self.shape:
            return 0
        steps = ((size - 1) * step for size, step in zip(self.shape, self.strides))
        return sum(steps) + self.dtype.itemsize

    def upload(self, array: Any) -> DeviceArray:
        """Copies an array of the same shape in, in order with the connection's products. Values of
        other types are converted."""
        source = as_host(array, "array")
        if source.array.shape != self.shape:
            raise InvalidArgument(f"its shape is {source.array.shape}, not {self.shape}", "array")
        if not self._is_dense():
            if self.ndim < 2 or not self.mT._is_dense():
                raise InvalidArgument("the rows of this view do not lie together", "array")
            self.mT.upload(np.swapaxes(source.array, -1, -2))
            return self
        data = np.ascontiguousarray(self._converted(source.array, source.element))
        self._transfer("gemmd_buffer_write", data.ctypes.data, data.nbytes)
        return self

    def _converted(self, array: np.ndarray, element: Optional[Element]) -> np.ndarray:
        if self.element is None:
            return array.astype(self.dtype, copy=False)
        if element is not None and element is not element_of(array.dtype):
            return array if element is self.element else convert(array.view(), self.element)
        return convert(array, self.element)

    def download(self, out: Optional[np.ndarray] = None) -> np.ndarray:
        """A copy in host memory (in `out`, when given), after the products that write it."""
        if out is not None and (out.shape != self.shape or not self._fits(out.dtype)):
            raise InvalidArgument(
                f"out is {out.dtype.name} of shape {out.shape}, not {self.dtype.name} of shape "
                f"{self.shape}",
                "out",
            )
        if out is not None and self._is_dense() and out.flags.c_contiguous and out.flags.writeable:
            self._transfer("gemmd_buffer_read", out.ctypes.data, out.nbytes)
            return out
        raw = np.empty(self._span(), np.uint8)
        self._transfer("gemmd_buffer_read", raw.ctypes.data, raw.nbytes)
        value: np.ndarray = np.ndarray(self.shape, self.dtype, raw, strides=self.strides)
        if out is None:
            return value if self._is_dense() else value.copy()
        out[...] = value.view(out.dtype)
        return out

    def _fits(self, dtype: np.dtype) -> bool:
        return dtype == self.dtype or (self.element is not None and holds(dtype, self.element))

    def _transfer(self, name: str, address: int, size: int) -> None:
        self._memory.check()
        session = self._memory.session
        buffer = self._memory.mapping.buffer
        pointer = ctypes.c_void_p(address)
        session.call(getattr(session.library, name), buffer, self.offset, pointer, size)

    def free(self) -> None:
        """Gives the memory back now; products under way that use it finish first. By the creator
        of a named buffer: also gives up the name. Views of it cannot be used any more."""
        self._memory.free()

    def __matmul__(self, other: Any) -> Any:
        assert self.connection is not None
        return self.connection.matmul(self, other)

    def __rmatmul__(self, other: Any) -> Any:
        assert self.connection is not None
        return self.connection.matmul(other, self)


def device_array(view: DeviceView, session: Session) -> Union[np.ndarray, DeviceArray]:
    """Another library's device memory, for one product: its buffer is imported when it is not there
    yet. What has no elements has no place."""
    if 0 in view.shape:
        return np.empty(view.shape, view.dtype)
    if any(step < 0 for step in view.strides):
        raise Unsupported("a device array with negative steps cannot be used", view.argument)
    wait_for_producer(view)
    place = session.exchange.place(view, lambda mapping: Memory(session, mapping), session)
    array = DeviceArray(None, place.memory, view.shape, view.dtype, view.element)
    array.strides, array.offset = view.strides, place.offset
    return array
