"""The CUDA driver of this process, by ctypes: what it takes to map the daemon's device memory here
and to lend it ours. Loaded when first needed, and only then; nothing else of CUDA is.

Whoever else uses CUDA in this process (torch, CuPy) works in the device's primary context, so that
one is current during each call here, and the caller's own again after it.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any, Iterator, NamedTuple

NAME = "libcuda.so.1"
INTERFACE = 12000  # as daemon/worker/driver.h resolves its calls

_LEGACY_STREAM = 1
_DEVICE = 1  # CU_MEM_LOCATION_TYPE_DEVICE
_READ_WRITE = 3  # CU_MEM_ACCESS_FLAGS_PROT_READWRITE
_DESCRIPTOR = 1  # CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
_BUFFER_ID = 7  # CU_POINTER_ATTRIBUTE_BUFFER_ID
_DEVICE_ORDINAL = 9  # CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL


class CudaError(Exception):
    """A call of the driver failed, or there is no driver."""


class _Location(ctypes.Structure):
    _fields_ = [("type", c_int), ("id", c_int)]


class _Access(ctypes.Structure):
    _fields_ = [("location", _Location), ("flags", c_int)]


class Allocation(NamedTuple):
    """What an address of this process lies in. `id` tells it from a later one at the same place."""

    base: int
    size: int
    id: int


class Driver:
    def __init__(self) -> None:
        name = os.environ.get("GEMMD_LIBCUDA") or NAME
        try:
            self._resolve = ctypes.CDLL(name).cuGetProcAddress_v2
        except (OSError, AttributeError) as error:
            raise CudaError(f"there is no CUDA driver of 12.0 or later: {error}") from error
        self._functions: dict[str, Any] = {}
        self._contexts: dict[int, c_void_p] = {}
        self.call("cuInit", c_uint(0))

    def call(self, name: str, *arguments: Any) -> None:
        """Arguments are ctypes values, each of its parameter's own type."""
        function = self._functions.get(name)
        if function is None:
            address, found = c_void_p(), c_int()
            interface, flags = c_int(INTERFACE), c_uint64(_LEGACY_STREAM)
            self._resolve(name.encode(), byref(address), interface, flags, byref(found))
            if not address.value:
                raise CudaError(f"the CUDA driver has no {name}")
            function = self._functions[name] = ctypes.CFUNCTYPE(c_int)(address.value)
        result = function(*arguments)
        if result != 0:
            raise CudaError(f"{name} failed with CUDA error {result}")

    def ordinal_of(self, uuid: str) -> int:
        """The number that this process has for the device."""
        count = c_int()
        self.call("cuDeviceGetCount", byref(count))
        for ordinal in range(count.value):
            raw = (ctypes.c_ubyte * 16)()
            self.call("cuDeviceGetUuid", byref(raw), c_int(ordinal))
            text = bytes(raw).hex()
            cuts = (text[:8], text[8:12], text[12:16], text[16:20], text[20:])
            if "GPU-" + "-".join(cuts) == uuid.lower().replace("gpu-", "GPU-"):
                return ordinal
        raise CudaError(f"this process does not see the daemon's device {uuid}")

    @contextlib.contextmanager
    def on(self, ordinal: int) -> Iterator[None]:
        context = self._contexts.get(ordinal)
        if context is None:
            context = c_void_p()
            self.call("cuDevicePrimaryCtxRetain", byref(context), c_int(ordinal))
            self._contexts[ordinal] = context
        self.call("cuCtxPushCurrent", context)
        try:
            yield
        finally:
            self.call("cuCtxPopCurrent", byref(c_void_p()))

    # --- memory of others, here --------------------------------------------------------------

    def map(self, fd: int, size: int, ordinal: int) -> int:
        """The address of an exported allocation."""
        handle, address, whole = c_uint64(), c_uint64(), c_size_t(size)
        none, kind = c_uint64(0), c_int(_DESCRIPTOR)
        access = _Access(_Location(_DEVICE, ordinal), _READ_WRITE)
        with self.on(ordinal), contextlib.ExitStack() as undo:
            self.call("cuMemImportFromShareableHandle", byref(handle), c_void_p(fd), kind)
            try:
                self.call("cuMemAddressReserve", byref(address), whole, none, none, none)
                undo.callback(self.call, "cuMemAddressFree", address, whole)
                self.call("cuMemMap", address, whole, none, handle, none)
                undo.callback(self.call, "cuMemUnmap", address, whole)
                self.call("cuMemSetAccess", address, whole, byref(access), c_size_t(1))
                undo.pop_all()
            finally:
                self.call("cuMemRelease", handle)
        return address.value

    def unmap(self, address: int, size: int, ordinal: int) -> None:
        """After the work that may still use it."""
        with self.on(ordinal):
            self.call("cuCtxSynchronize")
            self.call("cuMemUnmap", c_uint64(address), c_size_t(size))
            self.call("cuMemAddressFree", c_uint64(address), c_size_t(size))

    # --- memory of ours, to others -----------------------------------------------------------

    def device_of(self, address: int) -> int:
        ordinal, which = c_int(), c_int(_DEVICE_ORDINAL)
        self.call("cuPointerGetAttribute", byref(ordinal), which, c_uint64(address))
        return ordinal.value

    def allocation_of(self, address: int) -> Allocation:
        base, size, number = c_uint64(), c_size_t(), c_uint64()
        self.call("cuMemGetAddressRange", byref(base), byref(size), c_uint64(address))
        self.call("cuPointerGetAttribute", byref(number), c_int(_BUFFER_ID), c_uint64(address))
        return Allocation(base.value, size.value, number.value)

    def descriptor_of(self, address: int) -> int:
        """For memory of the virtual memory interface that was made to be shared."""
        handle, fd, kind = c_uint64(), c_int(-1), c_int(_DESCRIPTOR)
        self.call("cuMemRetainAllocationHandle", byref(handle), c_void_p(address))
        try:
            self.call("cuMemExportToShareableHandle", byref(fd), handle, kind, c_uint64(0))
        finally:
            self.call("cuMemRelease", handle)
        return fd.value

    def legacy_handle_of(self, address: int) -> bytes:
        """For memory of cudaMalloc(); stands for the whole allocation."""
        handle = (ctypes.c_ubyte * 64)()
        self.call("cuIpcGetMemHandle", byref(handle), c_uint64(address))
        return bytes(handle)

    def wait_for(self, stream: int) -> None:
        """Until the work on the stream is done; 1 is the legacy default stream, 2 the thread's."""
        self.call("cuStreamSynchronize", c_void_p(stream))


@functools.lru_cache(maxsize=None)
def driver() -> Driver:
    return Driver()
