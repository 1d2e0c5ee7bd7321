"""The connection of those who name none, and the products that use it."""

from __future__ import annotations

import os
import threading
from typing import Any, Optional, Union

from ._connection import Connection
from ._elements import DTypeLike
from ._future import Future
from ._memory import DeviceArray

_lock = threading.Lock()
_default: Optional[Connection] = None


def connect(path: Union[str, os.PathLike[str], None] = None) -> Connection:
    """Connects to the daemon, by default at $GEMMD_SOCKET, else $XDG_RUNTIME_DIR/gemmd.sock, else
    /run/gemmd/gemmd.sock. Also a context manager, which closes it.

    Raises Disconnected when no daemon is there, Timeout when it does not answer within 10 s."""
    return Connection(path)


def default_connection() -> Connection:
    """One per process, made when first needed, and anew when it was lost, closed, or a parent's."""
    global _default
    with _lock:
        if _default is None or not _default.is_open:
            _default = Connection()
        return _default


def _connection_for(connection: Optional[Connection], *arrays: Any) -> Connection:
    """The one named, else that of a device array, which no other could reach."""
    if connection is not None:
        return connection
    for array in arrays:
        if isinstance(array, DeviceArray):
            return array.connection
    return default_connection()


def matmul(
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
    connection: Optional[Connection] = None,
) -> Any:
    """activation(alpha * a @ b + beta * c + bias) by the daemon, shaped as by numpy.matmul.

    a, b: arrays of 1 to 3 dimensions; a batch of one is repeated. numpy arrays, device arrays of
    this package, or anything in host memory that speaks DLPack (CPU tensors of torch, say).
    out: where the result goes; else a new numpy array. Returned as given.
    c: the addend; with beta != 0 and no c, what is in `out`. beta = 0 reads neither.
    dtype: the elements that are multiplied, where the arrays do not say ("bf16" of uint16) or say
    otherwise (then they are converted). Else both are promoted to a common type; int8 stays.
    out_dtype: of the result: as the inputs, int32 for int8; "fp32" is possible for bf16 and fp16.
    bias: one value for each column of the result, as in a linear layer, or for each row (then of
        shape (rows, 1)); it broadcasts as in numpy, and is converted to the result's type.
    activation: "relu", "gelu" (by the error function), "gelu_tanh" or "silu"; int32 has "relu".
    deadline: seconds from now; a product that has not started by then raises DeadlinePassed.
    priority: -1, 0 or 1, among the products of this user.
    """
    return submit(
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
        connection=connection,
    ).result()


def submit(
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
    connection: Optional[Connection] = None,
) -> Future:
    """Starts matmul() and returns its Future. See Connection.submit()."""
    return _connection_for(connection, a, b, out, c, bias).submit(
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


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.Lock()  # another thread may have held it


os.register_at_fork(after_in_child=_after_fork_in_child)
