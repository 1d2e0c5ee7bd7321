"""One exception per status of the C library.

`argument` names what was wrong in the words of the call that was made ("b", "out_dtype", "a.ld"),
"" when nothing in particular; `message` says what was given and what is allowed. Where Python has
an exception for the same thing, ours is one too, so that `except TimeoutError` works.
"""

from __future__ import annotations

import enum


class Status(enum.IntEnum):
    OK = 0
    INVALID_ARGUMENT = 1
    UNSUPPORTED = 2
    NOT_FOUND = 3
    PERMISSION = 4
    LIMIT = 5
    OUT_OF_MEMORY = 6
    COMPILE_FAILED = 7
    COMPILE_TIMEOUT = 8
    GPU_FAULT = 9
    BUFFER_LOST = 10
    CANCELLED = 11
    SHUTTING_DOWN = 12
    EXISTS = 13
    PROTOCOL = 14
    INTERNAL = 15
    DISCONNECTED = 16
    FORKED = 17
    TIMEOUT = 18
    DEADLINE = 19


class Error(Exception):
    """What every failure of gemmd is."""

    status: Status = Status.INTERNAL

    def __init__(self, message: str = "", argument: str = "") -> None:
        super().__init__(message, argument)
        self.message = message
        self.argument = argument

    def __str__(self) -> str:
        return f"{self.argument}: {self.message}" if self.argument else self.message


class InvalidArgument(Error, ValueError):
    status = Status.INVALID_ARGUMENT


class Unsupported(Error, NotImplementedError):
    """A valid request that this library, daemon or device cannot serve."""

    status = Status.UNSUPPORTED


NotSupported = Unsupported


class NotFound(Error, LookupError):
    status = Status.NOT_FOUND


class PermissionDenied(Error, PermissionError):
    status = Status.PERMISSION


class LimitReached(Error):
    """A limit of this user or of the daemon: retry later or use less."""

    status = Status.LIMIT


class OutOfMemory(Error, MemoryError):
    status = Status.OUT_OF_MEMORY


class CompileFailed(Error):
    status = Status.COMPILE_FAILED


class CompileTimeout(Error):
    status = Status.COMPILE_TIMEOUT


class GpuFault(Error):
    """The device faulted while this product ran; its output is undefined."""

    status = Status.GPU_FAULT


class BufferLost(Error):
    status = Status.BUFFER_LOST


class Cancelled(Error):
    status = Status.CANCELLED


class ShuttingDown(Error):
    status = Status.SHUTTING_DOWN


class Exists(Error, FileExistsError):
    status = Status.EXISTS


class ProtocolError(Error):
    status = Status.PROTOCOL


class InternalError(Error):
    status = Status.INTERNAL


class Disconnected(Error, ConnectionError):
    """No daemon, or it went away. Connect anew; named buffers can be opened again."""

    status = Status.DISCONNECTED


class Forked(Error):
    """The connection belongs to the parent process. Connect anew."""

    status = Status.FORKED


class Timeout(Error, TimeoutError):
    """The wait ended before the product did, which is still under way."""

    status = Status.TIMEOUT


class DeadlinePassed(Error, TimeoutError):
    """The product could not start in time and was not run."""

    status = Status.DEADLINE


def _leaves(kind: type[Error]) -> list[type[Error]]:
    return [leaf for child in kind.__subclasses__() for leaf in [child, *_leaves(child)]]


_BY_STATUS: dict[int, type[Error]] = {int(kind.status): kind for kind in _leaves(Error)}


def error_of(status: int, message: str, argument: str) -> Error:
    """A status that is not in the table comes from a newer library: it counts as INTERNAL."""
    return _BY_STATUS.get(status, InternalError)(message, argument)
