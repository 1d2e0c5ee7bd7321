"""The result of a product to come."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Any, Callable, Generator, NamedTuple, Optional

from ._errors import Error, InvalidArgument, Timeout

if TYPE_CHECKING:
    from ._session import Session

_log = logging.getLogger("gemmd")


class Result(NamedTuple):
    """What the daemon says of a product. The same problem and epoch give the same bits."""

    configuration: str
    epoch: int
    queued_seconds: float
    device_seconds: float
    compile_seconds: float


class Future:
    """Made by submit(). May be waited for by any thread, or with `await`, in any order; may be
    dropped, then the result is still written.

    Arrays that the product reads may be changed once submit() returned, unless they lie in memory
    shared with the daemon (connection.empty(), device buffers): the daemon reads those in place.
    """

    def __init__(self, session: Session, keep: Any, finish: Callable[[], Any]) -> None:
        self._session = session
        self._keep = keep  # arrays that the product uses
        self._finish: Optional[Callable[[], Any]] = finish  # from the answer to the value
        self._is_done = False
        self._value: Any = None
        self._error: Optional[Exception] = None
        self._info: Optional[Result] = None
        self._callbacks: list[Callable[[Future], Any]] = []
        self.job = 0  # the C library's number

    # --- by the session ---------------------------------------------------------------------

    def _settle(self, error: Optional[Error], info: Optional[Result]) -> None:
        """Called once, under the session's lock. Whoever sees _is_done sees the rest."""
        self._error, self._info = error, info
        try:
            if error is None and self._finish is not None:
                self._value = self._finish()
        except Exception as failure:  # of numpy, in a copy: it belongs to who asks for the value
            self._error = failure
        self._keep = self._finish = None
        self._is_done = True

    def _announce(self) -> None:
        """After _settle(), without the lock: callbacks may do anything."""
        while self._callbacks:
            try:
                callback = self._callbacks.pop(0)
            except IndexError:  # another thread took the last one
                return
            try:
                callback(self)
            except Exception:
                _log.exception("a callback of a gemmd.Future failed")

    # --- by the caller ----------------------------------------------------------------------

    def done(self) -> bool:
        """Whether result() would return at once. Takes in what has arrived, never waits."""
        if not self._is_done:
            self._session.look(self)
        return self._is_done

    def result(self, timeout: Optional[float] = None) -> Any:
        """The product, once it is there. Raises its error, or gemmd.Timeout after `timeout`
        seconds, which leaves it under way."""
        error = self.exception(timeout)
        if error is not None:
            raise error
        return self._value

    def exception(self, timeout: Optional[float] = None) -> Optional[Exception]:
        if timeout is not None and math.isnan(timeout):
            raise InvalidArgument("it is not a number", "timeout")
        if not self._is_done and not self._session.wait(self, timeout):
            raise Timeout(f"the product was not done after {timeout} s; it is still under way")
        return self._error

    @property
    def info(self) -> Optional[Result]:
        """What ran and how long it took; None before it is done, or when it failed."""
        return self._info

    def add_done_callback(self, callback: Callable[[Future], Any]) -> None:
        """Calls it with this future when done, in whichever thread notices; at once when it is
        done already. What it raises is logged, as in concurrent.futures."""
        self._callbacks.append(callback)
        if self._is_done:
            self._announce()

    def __await__(self) -> Generator[Any, None, Any]:
        import asyncio

        if self._is_done:
            return self.result()
        loop = asyncio.get_running_loop()
        answer = loop.create_future()

        def wake() -> None:
            if not answer.done():
                answer.set_result(None)

        def tell(_: Future) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(wake)

        self.add_done_callback(tell)
        with self._session.watched_by(loop):
            yield from answer
        return self.result(0)
