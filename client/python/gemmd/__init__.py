"""Matrix products by the gemmd daemon, from numpy.

    import gemmd

    d = gemmd.matmul(a, b)                      # any host arrays

    with gemmd.connect() as connection:
        x = connection.empty((512, 512), "fp16")    # shared with the daemon: no copies
        w = connection.device_buffer((512, 512), "fp16").upload(weights)
        future = connection.submit(x, w)
        y = future.result()                     # or: await future
"""

from ._connection import Connection, Info
from ._default import connect, default_connection, matmul, submit
from ._elements import from_bf16, to_bf16
from ._errors import (
    BufferLost,
    Cancelled,
    CompileFailed,
    CompileTimeout,
    DeadlinePassed,
    Disconnected,
    Error,
    Exists,
    Forked,
    GpuFault,
    InternalError,
    InvalidArgument,
    LimitReached,
    NotFound,
    NotSupported,
    OutOfMemory,
    PermissionDenied,
    ProtocolError,
    ShuttingDown,
    Status,
    Timeout,
    Unsupported,
)
from ._future import Future, Result
from ._memory import DeviceArray
from ._version import __version__

__all__ = [
    "BufferLost",
    "Cancelled",
    "CompileFailed",
    "CompileTimeout",
    "Connection",
    "DeadlinePassed",
    "DeviceArray",
    "Disconnected",
    "Error",
    "Exists",
    "Forked",
    "Future",
    "GpuFault",
    "Info",
    "InternalError",
    "InvalidArgument",
    "LimitReached",
    "NotFound",
    "NotSupported",
    "OutOfMemory",
    "PermissionDenied",
    "ProtocolError",
    "Result",
    "ShuttingDown",
    "Status",
    "Timeout",
    "Unsupported",
    "__version__",
    "connect",
    "default_connection",
    "from_bf16",
    "matmul",
    "submit",
    "to_bf16",
]
