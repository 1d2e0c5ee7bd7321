"""A connection: products, memory, questions."""

from __future__ import annotations

import ctypes
import json
import operator
import os
from types import TracebackType
from typing import Any, Iterable, Mapping, NamedTuple, Optional, Union

import numpy as np

from . import _library
from ._elements import DTypeLike, Element, element_of, parse, storage
from ._errors import InvalidArgument
from ._future import Future
from ._interop import as_host
from ._memory import (
    DeviceArray,
    Shape,
    bytes_of,
    host_array,
    memory_of,
    normal_shape,
)
from ._product import Arguments, prepare
from ._session import Session


KEEP_MAX = 32  # configurations that one tune() times


class Info(NamedTuple):
    daemon: str
    device: str
    device_kind: str  # "cpu", "cuda"
    in_flight_max: int
    message_max: int


def _type_of(dtype: DTypeLike) -> np.dtype:
    """Any numpy type may be stored; ours have names too."""
    if isinstance(dtype, str):
        try:
            return storage(parse(dtype, "dtype"))
        except InvalidArgument:
            pass
    try:
        stored = np.dtype(dtype)
    except TypeError:
        raise InvalidArgument(f"{dtype!r} is not an element type", "dtype") from None
    if stored.itemsize == 0:
        raise InvalidArgument(f"{dtype!r} is of no size", "dtype")
    return stored


def _declared(dtype: DTypeLike, stored: np.dtype) -> Optional[Element]:
    """What device memory of that type holds; bf16 may be stored as uint16."""
    return Element.BF16 if dtype == "bf16" else element_of(stored)


def _decoded(text: str) -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(text)
    return decoded


def _real(value: Any, argument: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise InvalidArgument(f"{value!r} is not a real number", argument) from None


def _whole(value: Any, argument: str, least: int, most: int) -> int:
    """ctypes would cut what is too large."""
    try:
        number = operator.index(value)
    except TypeError:
        raise InvalidArgument(f"{value!r} is not a whole number", argument) from None
    if not least <= number <= most:
        raise InvalidArgument(f"{number} is not from {least} to {most}", argument)
    return number


def _seconds(deadline: Optional[float]) -> float:
    """As the C library has it: 0 is none. One that is there stays one, however short."""
    return 0.0 if deadline is None else _real(deadline, "deadline") or 1e-9


def _arguments(
    a: Any,
    b: Any,
    *,
    out: Any = None,
    c: Any = None,
    alpha: float = 1,
    beta: float = 0,
    dtype: DTypeLike = None,
    out_dtype: DTypeLike = None,
    bias: Any = None,
    activation: Optional[str] = None,
    deadline: Optional[float] = None,
    priority: int = 0,
) -> Arguments:
    """Of submit()."""
    return Arguments(
        a,
        b,
        out,
        c,
        _real(alpha, "alpha"),
        _real(beta, "beta"),
        dtype,
        out_dtype,
        bias,
        activation,
        _seconds(deadline),
        _whole(priority, "priority", -1, 1),
    )


def _check_name(name: Optional[str]) -> Optional[bytes]:
    if name is not None and "\0" in name:
        raise InvalidArgument("it holds a null character", "name")
    return None if name is None else name.encode()


def _check_path(path: Union[str, os.PathLike[str], None]) -> Optional[bytes]:
    encoded = None if path is None else os.fsencode(path)
    if encoded is not None and b"\0" in encoded:
        raise InvalidArgument("the path holds a null character", "socket")
    return encoded


class Connection:
    """A connection to the daemon. Any thread may use it; calls of different threads take turns, and
    none waits while another waits for its result. Made by connect()."""

    def __init__(self, path: Union[str, os.PathLike[str], None] = None) -> None:
        self._session = Session(_check_path(path))

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close(wait=kind is None)

    def close(self, *, wait: bool = True) -> None:
        """Ends the connection. Products under way are waited for, or fail with Disconnected.
        Arrays of empty() stay usable; device arrays do not."""
        self._session.close(wait)

    @property
    def is_open(self) -> bool:
        """Neither closed, nor found lost, nor a parent's."""
        session = self._session
        return session.is_open and not session.is_lost and session.pid == os.getpid()

    def __repr__(self) -> str:
        return f"<gemmd.Connection {'open' if self.is_open else 'closed'}>"

    # --- products ---------------------------------------------------------------------------

    def matmul(
        self,
        a: Any,
        b: Any,
        *,
        out: Any = None,
        c: Any = None,
        alpha: float = 1,
        beta: float = 0,
        dtype: DTypeLike = None,
        out_dtype: DTypeLike = None,
        bias: Any = None,
        activation: Optional[str] = None,
        deadline: Optional[float] = None,
        priority: int = 0,
    ) -> Any:
        """As gemmd.matmul(), on this connection."""
        return self.submit(
            a,
            b,
            out=out,
            c=c,
            alpha=alpha,
            beta=beta,
            dtype=dtype,
            out_dtype=out_dtype,
            bias=bias,
            activation=activation,
            deadline=deadline,
            priority=priority,
        ).result()

    def submit(
        self,
        a: Any,
        b: Any,
        *,
        out: Any = None,
        c: Any = None,
        alpha: float = 1,
        beta: float = 0,
        dtype: DTypeLike = None,
        out_dtype: DTypeLike = None,
        bias: Any = None,
        activation: Optional[str] = None,
        deadline: Optional[float] = None,
        priority: int = 0,
    ) -> Future:
        """Starts a product. Those of one connection take effect in the order they were started:
        the next may read what this one writes, in shared or device memory. When as many as may be
        are under way (info().in_flight_max), it waits until one is done."""
        session = self._session
        session.check()
        arguments = _arguments(
            a,
            b,
            out=out,
            c=c,
            alpha=alpha,
            beta=beta,
            dtype=dtype,
            out_dtype=out_dtype,
            bias=bias,
            activation=activation,
            deadline=deadline,
            priority=priority,
        )
        record, keep, finish = prepare(arguments, session)
        future = Future(session, keep, finish)
        session.submit(record, future)
        return future

    def submit_many(self, products: Iterable[Mapping[str, Any]]) -> list[Future]:
        """Starts many products with few messages: for small ones. Each is a mapping with the
        arguments of submit(): submit_many({"a": x, "b": w} for x in batches). They take effect as
        if they were submitted one by one; if one is refused, those in its message and behind it
        are not started, and a message holds up to 32."""
        session = self._session
        session.check()
        prepared = [prepare(_arguments(**product), session) for product in products]
        futures = [Future(session, one.keep, one.finish) for one in prepared]
        session.submit_many([one.record for one in prepared], futures)
        return futures

    def explain(
        self, a: Any, b: Any, *, dtype: DTypeLike = None, out_dtype: DTypeLike = None
    ) -> dict[str, Any]:
        """The daemon's plan for matmul(a, b), which is not run."""
        session = self._session
        session.check()
        record, keep, _ = prepare(Arguments(a, b, None, None, 1, 0, dtype, out_dtype), session)
        text = session.ask(session.library.gemmd_explain_json, ctypes.byref(record))
        del keep
        return _decoded(text)

    def tune(
        self,
        a: Any,
        b: Any,
        *,
        keep: int = 0,
        dtype: DTypeLike = None,
        out_dtype: DTypeLike = None,
    ) -> dict[str, Any]:
        """Times the plan's best `keep` configurations (0: the daemon's own number) for products
        like matmul(a, b) on the device, and keeps the fastest. For root and the daemon's user."""
        session = self._session
        session.check()
        keep = _whole(keep, "keep", 0, KEEP_MAX)
        record, held, _ = prepare(Arguments(a, b, None, None, 1, 0, dtype, out_dtype), session)
        text = session.ask(session.library.gemmd_tune_json, ctypes.byref(record), keep)
        del held
        return _decoded(text)

    # --- memory -----------------------------------------------------------------------------

    def empty(
        self,
        shape: Shape,
        dtype: DTypeLike = np.float32,
        *,
        name: Optional[str] = None,
        mode: int = 0o600,
    ) -> np.ndarray:
        """An ordinary numpy array in memory that the daemon maps too: products use it, and any
        view of it, without a copy. It holds zeros. With `name`, other processes can open it."""
        sizes, element_type = normal_shape(shape), _type_of(dtype)
        if bytes_of(sizes, element_type) == 0 and name is None:
            return np.empty(sizes, element_type)
        mapping = self._create(_library.HOST, bytes_of(sizes, element_type), name, mode)
        return host_array(memory_of(self._session, mapping), sizes, element_type)

    def array(self, values: Any, dtype: DTypeLike = None) -> np.ndarray:
        """A copy of an array in memory as of empty()."""
        source = as_host(values, "values").array
        copy = self.empty(source.shape, source.dtype if dtype is None else dtype)
        copy[...] = source
        return copy

    def freeze(self, array: np.ndarray) -> np.ndarray:
        """Nobody writes the buffer that an array of empty() lies in any more, here or elsewhere:
        the daemon may then keep a copy on the device, so that products need not move it there each
        time. Returns the array, read-only now; its views are yours to leave alone."""
        session = self._session
        address = array.__array_interface__["data"][0]
        mapping = session.find(address, address + array.nbytes)
        if mapping is None:
            raise InvalidArgument("it does not lie in memory of empty()", "array")
        session.settle()
        session.call(session.library.gemmd_buffer_freeze, mapping.buffer)
        array.flags.writeable = False
        return array

    def device_buffer(
        self,
        shape: Shape,
        dtype: DTypeLike = np.float32,
        *,
        name: Optional[str] = None,
        mode: int = 0o600,
        exportable: bool = False,
    ) -> DeviceArray:
        """Zeros in the daemon's device memory. With `name`, other processes can open it, as `mode`
        allows by owner, group and others; the name lasts until its creator frees it. `exportable`
        lets torch, CuPy and others here, and where it is opened writable, use the memory itself
        (torch.from_dlpack(array)); such memory comes in units of 2 MiB."""
        sizes, element_type = normal_shape(shape), _type_of(dtype)
        kind = _library.DEVICE_EXPORTABLE if exportable else _library.DEVICE
        mapping = self._create(kind, bytes_of(sizes, element_type), name, mode)
        memory = memory_of(self._session, mapping)
        return DeviceArray(
            self, memory, sizes, element_type, _declared(dtype, element_type), name
        )

    def open_buffer(
        self,
        name: str,
        shape: Optional[Shape] = None,
        dtype: DTypeLike = None,
        *,
        writable: bool = False,
    ) -> Union[np.ndarray, DeviceArray]:
        """A named buffer that somebody made: a numpy array when it is host memory, else a device
        array. The name says nothing of shape and type: without them it is bytes."""
        element_type = _type_of(np.uint8 if dtype is None else dtype)
        session = self._session
        mapping = session.obtain(
            session.library.gemmd_buffer_open,
            _check_name(name),
            bool(writable),
            is_named=True,
        )
        memory = memory_of(session, mapping, writable)
        if shape is None:
            sizes: tuple[int, ...] = (mapping.size // element_type.itemsize,)
        else:
            sizes = normal_shape(shape)
        if bytes_of(sizes, element_type) > mapping.size:
            memory.free()
            raise InvalidArgument(
                f"{sizes} of {element_type.name} takes {bytes_of(sizes, element_type)} bytes; the "
                f"buffer has {mapping.size}",
                "shape",
            )
        if mapping.address:
            return host_array(memory, sizes, element_type)
        return DeviceArray(
            self, memory, sizes, element_type, _declared(dtype, element_type), name
        )

    def _create(self, kind: int, size: int, name: Optional[str], mode: int) -> Any:
        session = self._session
        return session.obtain(
            session.library.gemmd_buffer_create,
            kind,
            size,
            _check_name(name),
            _whole(mode, "mode", 0, 0o777),
            is_named=name is not None,
        )

    # --- questions --------------------------------------------------------------------------

    def info(self) -> Info:
        record = self._session.get_info()
        return Info(
            record.daemon.decode(),
            record.device.decode(),
            record.device_kind.decode(),
            record.in_flight_max,
            record.message_max,
        )

    def status(self) -> dict[str, Any]:
        """What the daemon says of itself: device, worker, cache, clients, jobs, buffers."""
        return _decoded(self._session.ask(self._session.library.gemmd_status_json))

    def stats(self) -> dict[str, Any]:
        """Counters since the daemon's start."""
        return _decoded(self._session.ask(self._session.library.gemmd_stats_json))
