"""Device memory without copies, in both directions.

Out: an exportable buffer of the daemon's, mapped into this process, for torch, CuPy and others.
Where the daemon computes on the CPU its device memory is host memory, and is shown as such.

In: their device arrays as operands. Memory that came out of here is recognised. Other memory is
imported, a whole allocation at a time, and kept until IMPORTS_KEPT others have displaced it:
mapping costs a product's time many times over.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import mmap
import os
import threading
import weakref
from typing import TYPE_CHECKING, Any, Callable, Iterator, NamedTuple, Optional

import numpy as np

from ._cuda import Allocation, CudaError, driver
from ._errors import InvalidArgument, PermissionDenied, Unsupported
from ._interop import CPU, CUDA, DeviceView
from ._library import ExportRecord, ImportRecord

if TYPE_CHECKING:
    from ._memory import Memory
    from ._session import Session

IMPORTS_KEPT = 32


class Mapping(NamedTuple):
    """A buffer, and where its host memory lies in this process; address 0: it has none here."""

    address: int
    size: int
    buffer: int


class Exported:
    """One exportable buffer's memory in this process. Whoever uses it holds this object."""

    def __init__(self, session: Session, buffer: int) -> None:
        record = ExportRecord(size=ctypes.sizeof(ExportRecord))
        session.call(session.library.gemmd_buffer_export, buffer, ctypes.byref(record))
        self.size = int(record.allocation)
        self.kind = CUDA if record.device else CPU
        self.ordinal = 0
        self.address = 0
        try:
            self._map(record.fd, record.device.decode())
        finally:
            os.close(record.fd)

    def _map(self, fd: int, device: str) -> None:
        try:
            if self.kind == CPU:
                self._bytes = np.frombuffer(mmap.mmap(fd, self.size), np.uint8)
                self.address = self._bytes.ctypes.data
            else:
                self.ordinal = driver().ordinal_of(device)
                self.address = driver().map(fd, self.size, self.ordinal)
        except (CudaError, OSError) as error:
            raise Unsupported(f"the buffer cannot be mapped here: {error}", "array") from error

    def __del__(self) -> None:
        if getattr(self, "address", 0) and self.kind == CUDA:
            with contextlib.suppress(CudaError):
                driver().unmap(self.address, self.size, self.ordinal)


class Place(NamedTuple):
    """Where an array of another library lies: what keeps its buffer, and bytes into that."""

    memory: Memory
    offset: int


class Exchange:
    """What one session has mapped and imported. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # of the tables; nothing is called under it
        self._exports: weakref.WeakSet[Memory] = weakref.WeakSet()
        self._imports: collections.OrderedDict[Allocation, Memory] = collections.OrderedDict()

    def export(self, memory: Memory) -> Exported:
        """Mapped once per buffer, for as long as the buffer or anybody who uses it lives."""
        if memory.exported is None:
            memory.exported = Exported(memory.session, memory.mapping.buffer)
            with self._lock:
                self._exports.add(memory)
        return memory.exported

    def place(self, view: DeviceView, make: Callable[[Mapping], Memory], session: Session) -> Place:
        """`make` turns an imported buffer into what keeps it."""
        found = self._find_exported(view)
        if found is not None:
            return found
        try:
            with driver().on(driver().device_of(view.low)):
                allocation = driver().allocation_of(view.low)
                with self._lock:
                    memory = self._imports.get(allocation)
                if memory is None:
                    memory = make(_import(allocation, view.high, session))
                    self._remember(allocation, memory)
        except CudaError as error:
            raise _unsharable(str(error), view.argument) from error
        except (InvalidArgument, Unsupported) as error:
            raise _unsharable(error.message, view.argument) from error
        except PermissionDenied as error:
            raise PermissionDenied(error.message, view.argument) from error
        return Place(memory, view.low - allocation.base)

    def _find_exported(self, view: DeviceView) -> Optional[Place]:
        with self._lock:
            memories = list(self._exports)
        for memory in memories:
            exported = memory.exported
            if exported is not None and exported.address <= view.low:
                if view.high <= exported.address + exported.size:
                    return Place(memory, view.low - exported.address)
        return None

    def _remember(self, allocation: Allocation, memory: Memory) -> None:
        displaced = []  # let go outside the lock: that calls the library
        with self._lock:
            self._imports[allocation] = memory
            while len(self._imports) > IMPORTS_KEPT:
                displaced.append(self._imports.popitem(last=False))

    def forget(self) -> None:
        with self._lock:
            imports, self._imports = self._imports, collections.OrderedDict()
        imports.clear()


def _import(allocation: Allocation, high: int, session: Session) -> Mapping:
    if high > allocation.base + allocation.size:
        raise CudaError("the array lies in several allocations")
    record = ImportRecord(
        size=ctypes.sizeof(ImportRecord), fd=-1, bytes=allocation.size, writable=True, mode=0o600
    )
    with _handle_of(allocation, record):
        return session.obtain(
            session.library.gemmd_buffer_import, ctypes.byref(record), is_named=False
        )


@contextlib.contextmanager
def _handle_of(allocation: Allocation, record: ImportRecord) -> Iterator[None]:
    """A descriptor, which needs no trust, where the memory has one; else the legacy handle."""
    handle = None
    try:
        record.fd = driver().descriptor_of(allocation.base)
    except CudaError:
        handle = ctypes.create_string_buffer(driver().legacy_handle_of(allocation.base), 64)
        record.ipc_handle = ctypes.addressof(handle)
    try:
        yield
    finally:
        del handle
        if record.fd >= 0:
            os.close(record.fd)


def _unsharable(why: str, argument: str) -> Unsupported:
    return Unsupported(
        f"this device memory cannot be shared with the daemon ({why}); use an array on "
        "connection.device_buffer(..., exportable=True)",
        argument,
    )


def wait_for_producer(view: DeviceView) -> None:
    """The daemon's products wait for no stream of this process, so this does."""
    if view.stream is None:
        return
    try:
        ordinal = driver().device_of(view.low)
    except CudaError as error:
        raise _unsharable(str(error), view.argument) from error
    try:
        with driver().on(ordinal):
            driver().wait_for(view.stream)
    except CudaError as error:
        raise InvalidArgument(f"the work on its stream failed: {error}", view.argument) from error
