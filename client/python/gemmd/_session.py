"""One connection of the C library, made fit for threads, garbage collection and fork().

Threads. The C library wants one thread at a time in a connection: `_lock` is held for each call and
never while waiting for an answer (but for as long as the library itself would spin). Of the threads
that wait, one, the leader, watches the descriptor and takes in answers for all; the others sleep
until their product is done or the leader has left. Without that every answer would wake everybody.
Event loops and done() take answers in as well, the leader's too, and then wake it: the descriptor
that it watches is silent again.

Garbage. An array's last reference can vanish anywhere, also inside a call of this module in the
same thread, so whoever finds a buffer dead only notes it; it is freed by the first to get the lock.

Closing. The library unmaps every buffer when it closes, under arrays that are still in use, and gives
up a descriptor that event loops watch, whose number the next connection may get. So a session with
such arrays or loops is closed for its user at once and in the library when the last one is gone.

Fork. A child makes no call on its parent's session. Its lock may have been held by a thread that
does not exist there; then not even memory is freed.
"""

from __future__ import annotations

import bisect
import collections
import contextlib
import ctypes
import math
import os
import select
import sys
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any, Callable, Iterator, Optional

from ._errors import Disconnected, Error, Forked, Status, error_of
from ._exchange import Exchange, Mapping
from ._future import Future, Result
from ._library import ErrorRecord, InfoRecord, ProductRecord, ResultRecord, library

if TYPE_CHECKING:
    import asyncio

SUBMIT_MANY_MAX = 32  # GEMMD_SUBMIT_MANY_MAX
SPIN_SECONDS = 50e-6  # as long as the library spins before it sleeps: cheaper than to poll

# What Python calls the C library's arguments.
_OURS = {"d": "out", "input": "dtype", "output": "out_dtype", "deadline_seconds": "deadline"}

_sessions: weakref.WeakSet[Session] = weakref.WeakSet()


class Session:
    def __init__(self, path: Optional[bytes]) -> None:
        self.library = library()
        self.pid = os.getpid()
        self.is_open = False
        self.is_lost = False
        self._handle: Optional[int] = None
        self._lock = threading.Lock()
        self._pending: dict[int, Future] = {}  # by job, oldest first
        self._freed: collections.deque[int] = collections.deque()  # buffers that nobody uses
        self._buffers: set[int] = set()  # the library's handles that are not freed
        self._named: set[int] = set()  # of those, whose name must outlive the session
        self._mappings: list[Mapping] = []  # by address; replaced, never changed
        self.exchange = Exchange()

        self._state = threading.Lock()  # of the next two; nothing is called under it
        self._led: Optional[Future] = None  # what the leader waits for
        self._waiters: dict[threading.Event, Future] = {}
        # Made when first needed: one costs a system call per answer, the other a descriptor.
        self._fd = -1  # gemmd_fd()
        self._wake = -1  # ends the leader's sleep
        self._readers: dict[Any, int] = {}  # event loop: who awaits there

        self._connect(path)
        self.in_flight_max = self.get_info().in_flight_max
        _sessions.add(self)

    def _connect(self, path: Optional[bytes]) -> None:
        handle, error = ctypes.c_void_p(), ErrorRecord()
        status = self.library.gemmd_connect(path, ctypes.byref(handle), ctypes.byref(error))
        if status != Status.OK:
            raise error_of(status, error.message.decode(errors="replace"), error.argument.decode())
        self._handle = handle.value
        self.is_open = True

    # --- calls ------------------------------------------------------------------------------

    def check(self) -> None:
        if self.pid != os.getpid():
            raise Forked(f"process {self.pid} made the connection and forked this one; connect anew")
        if not self.is_open:
            raise Disconnected("the connection is closed")

    def _last_error(self) -> Error:
        record = self.library.gemmd_last_error(self._handle).contents
        if record.status == Status.DISCONNECTED:
            self.is_lost = True
        argument = record.argument.decode()
        message = record.message.decode(errors="replace")
        return error_of(record.status, message, _OURS.get(argument, argument))

    def call(self, function: Callable[..., int], *arguments: Any) -> None:
        """A function of the library that returns a status, on a handle that the caller holds."""
        self.check()
        with self._lock:
            self.check()
            error = None if function(*arguments) == Status.OK else self._last_error()
        self._bury()
        if error is not None:
            raise error

    def get_info(self) -> InfoRecord:
        info = InfoRecord(size=ctypes.sizeof(InfoRecord))
        self.call(self.library.gemmd_get_info, self._handle, ctypes.byref(info))
        return info

    def ask(self, function: Callable[..., int], *arguments: Any) -> str:
        """A function of the library that answers with a text."""
        text = ctypes.c_void_p()
        self.call(function, self._handle, *arguments, ctypes.byref(text))
        try:
            return ctypes.string_at(text.value or 0).decode()
        finally:
            self.library.gemmd_free(text)

    # --- buffers ----------------------------------------------------------------------------

    def obtain(
        self, function: Callable[..., int], *arguments: Any, is_named: bool
    ) -> Mapping:
        """A buffer from one of the library's functions; address 0 when it is not mapped."""
        buffer = ctypes.c_void_p()
        self.check()
        with self._lock:
            self.check()
            self._free_all()  # it may hold the name, or the room
            status = function(self._handle, *arguments, ctypes.byref(buffer))
            if status != Status.OK:
                raise self._last_error()
            handle = buffer.value or 0
            mapping = Mapping(
                self.library.gemmd_buffer_data(handle) or 0,
                self.library.gemmd_buffer_size(handle),
                handle,
            )
            self._buffers.add(handle)
            if is_named:
                self._named.add(handle)
            if mapping.address:
                self._mappings = sorted([*self._mappings, mapping])
        self._bury()
        return mapping

    def find(self, low: int, high: int) -> Optional[Mapping]:
        """The buffer that the bytes from `low` to `high` lie in. The caller holds an array on them,
        so the answer stays true without the lock."""
        mappings = self._mappings
        at = bisect.bisect_right(mappings, Mapping(low, sys.maxsize, 0)) - 1
        if at < 0 or high > mappings[at].address + mappings[at].size:
            return None
        return mappings[at]

    def discard(self, buffer: int) -> None:
        """From finalizers."""
        if self.pid == os.getpid():
            self._freed.append(buffer)
            self._bury()

    def _bury(self) -> None:
        while self._freed and self._lock.acquire(blocking=False):
            try:
                self._free_all()
            finally:
                self._lock.release()

    def _free_all(self) -> None:
        """Under the lock. A handle that close() freed may come a second time."""
        if not self._freed:
            return
        dead = set()
        while self._freed:
            dead.add(self._freed.popleft())
        # First: what is mapped there next is not ours.
        self._mappings = [mapping for mapping in self._mappings if mapping.buffer not in dead]
        for buffer in dead:
            self._free(buffer)
        self._shut_unless_used()

    def _free(self, buffer: int) -> None:
        """Freeing gives up a name and closing does not, so after close() the library closes."""
        if buffer not in self._buffers or (buffer in self._named and not self.is_open):
            return
        self._buffers.remove(buffer)
        self._named.discard(buffer)
        self.library.gemmd_buffer_free(buffer)

    # --- products ---------------------------------------------------------------------------

    def submit(self, product: ProductRecord, future: Future) -> None:
        """Waits for the oldest product when as many are under way as may be."""
        job = ctypes.c_uint64()
        while True:
            self.check()
            with self._lock:
                self.check()
                if len(self._pending) < self.in_flight_max:
                    status = self.library.gemmd_submit(
                        self._handle, ctypes.byref(product), ctypes.byref(job)
                    )
                    if status != Status.OK:
                        raise self._last_error()
                    future.job = job.value
                    self._pending[job.value] = future
                    break
                oldest = self._oldest()
            assert oldest is not None
            self.wait(oldest, None)
        self._bury()

    def submit_many(self, products: list[ProductRecord], futures: list[Future]) -> None:
        """With a message for as many as it holds, and as may be under way beside the others."""
        done = 0
        while done < len(products):
            self.check()
            with self._lock:
                self.check()
                done += self._send(products[done:], futures[done:])
                oldest = self._oldest()
            if done < len(products) and oldest is not None:
                self.wait(oldest, None)
        self._bury()

    def _send(self, products: list[ProductRecord], futures: list[Future]) -> int:
        """Under the lock. How many: a message full, or none while there is no room for that."""
        count = min(len(products), SUBMIT_MANY_MAX, self.in_flight_max)
        if len(self._pending) + count > self.in_flight_max:
            return 0
        records = (ProductRecord * count)(*products[:count])
        jobs = (ctypes.c_uint64 * count)()
        status = self.library.gemmd_submit_many(self._handle, records, count, jobs)
        if status == Status.LIMIT and self._pending:
            return 0  # those under way leave no numbers in a row
        if status != Status.OK:
            raise self._last_error()
        for future, job in zip(futures, jobs):
            future.job = job
            self._pending[job] = future
        return count

    def settle(self) -> None:
        """Waits for the products under way, as they are now."""
        if self.pid != os.getpid():
            self.check()
        with self._lock:
            pending = list(self._pending.values())
        for future in pending:
            self.wait(future, None)

    def _oldest(self) -> Optional[Future]:
        """Under the lock."""
        return next(iter(self._pending.values()), None)

    def _take(self, future: Future, seconds: float) -> bool:
        """Under the lock: settles a pending product if its answer comes in time."""
        record = ResultRecord(size=ctypes.sizeof(ResultRecord))
        status = self.library.gemmd_wait(self._handle, future.job, seconds, ctypes.byref(record))
        if status == Status.TIMEOUT:
            return False
        del self._pending[future.job]
        if status != Status.OK:
            future._settle(self._last_error(), None)
            return True
        future._settle(
            None,
            Result(
                record.configuration.decode(),
                record.epoch,
                record.queued_seconds,
                record.device_seconds,
                record.compile_seconds,
            ),
        )
        return True

    def _descriptor(self) -> int:
        """Under the lock."""
        if self._fd < 0:
            self._fd = self.library.gemmd_fd(self._handle)
        if self._fd < 0:
            raise self._last_error()
        return self._fd

    def _is_readable(self) -> bool:
        poller = select.poll()
        poller.register(self._descriptor(), select.POLLIN)
        return bool(poller.poll(0))

    def _take_in(
        self, wanted: Optional[Future], seconds: float, leads: bool = False
    ) -> list[Future]:
        """Settles `wanted` if it is done within so long. If not, all that are done, since the
        descriptor stays readable while answers wait to be taken. Returns those settled whose
        callbacks are to be called, by a thread that holds nothing: they may wait themselves."""
        settled = []
        with self._lock:
            if not self.is_open:
                return []
            if wanted is not None and not wanted._is_done and self._take(wanted, seconds):
                settled.append(wanted)
            if wanted is None or not wanted._is_done:
                for future in list(self._pending.values()):
                    if self._take(future, 0):
                        settled.append(future)
                    elif not self._is_readable():
                        break
        self._wake_waiters(settled, leads)
        self._bury()
        return [future for future in settled if future._callbacks]

    def _wake_waiters(self, settled: list[Future], leads: bool = False) -> None:
        if settled:
            with self._state:
                for waiter, future in self._waiters.items():
                    if future._is_done:
                        waiter.set()
                if not leads and self._led is not None and self._led._is_done and self._wake >= 0:
                    os.eventfd_write(self._wake, 1)

    def take_in(self, wanted: Optional[Future] = None) -> None:
        for future in self._take_in(wanted, 0):
            future._announce()

    # --- waiting ----------------------------------------------------------------------------

    def look(self, future: Future) -> None:
        """Takes in what has arrived, unless somebody is at it."""
        if self.pid != os.getpid() or not self._lock.acquire(blocking=False):
            return
        self._lock.release()
        self.take_in(future)

    def wait(self, future: Future, timeout: Optional[float]) -> bool:
        """False when the time is over first."""
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        while not future._is_done:
            if self.pid != os.getpid():
                self.check()
            if time.monotonic() >= deadline:
                self.take_in(future)
                return future._is_done
            self._lead_or_follow(future, deadline)
        return True

    def _lead_or_follow(self, future: Future, deadline: float) -> None:
        waiter, settled = None, []
        with self._state:
            if self._led is not None:
                waiter = threading.Event()
                self._waiters[waiter] = future
            else:
                self._led = future
        try:
            if waiter is None:
                settled = self._lead(future, deadline)
            elif not future._is_done:
                seconds = deadline - time.monotonic()
                waiter.wait(max(0.0, seconds) if seconds < threading.TIMEOUT_MAX else None)
        finally:
            with self._state:
                if waiter is None:
                    self._led = None
                else:
                    del self._waiters[waiter]
                if self._led is None and self._waiters:  # who leads next
                    next(iter(self._waiters)).set()
        for one in settled:
            one._announce()

    def _lead(self, future: Future, deadline: float) -> list[Future]:
        """Until the future is done, it is too late, or there are callbacks to call."""
        seconds = max(0.0, min(SPIN_SECONDS, deadline - time.monotonic()))
        settled = self._take_in(future, seconds, leads=True)
        if future._is_done or settled:
            return settled
        poller = self._poller()
        while not (future._is_done or settled) and (left := deadline - time.monotonic()) > 0:
            ready = poller.poll(None if left > 1e6 else math.ceil(left * 1e3))
            if (self._wake, select.POLLIN) in ready:
                os.eventfd_read(self._wake)
            settled = self._take_in(future, 0, leads=True)
        return settled

    def _poller(self) -> select.poll:
        with self._lock:
            if self._wake < 0:
                self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            poller = select.poll()
            poller.register(self._wake, select.POLLIN)
            if self.is_open:
                poller.register(self._descriptor(), select.POLLIN)
        return poller

    @contextlib.contextmanager
    def watched_by(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        """While in it, the loop takes answers in. Each loop counts its own."""
        self.check()
        with self._lock:
            self.check()
            fd = self._descriptor()
            self._readers[loop] = self._readers.get(loop, 0) + 1
        try:
            if self._readers[loop] == 1:
                loop.add_reader(fd, self.take_in)
            self.take_in()
            yield
        finally:
            self._readers[loop] -= 1
            if self._readers[loop] == 0:
                loop.remove_reader(fd)
                del self._readers[loop]
                if not self.is_open:
                    self.discard(0)  # no buffer: whoever buries it ends the session

    # --- the end ----------------------------------------------------------------------------

    def close(self, wait: bool) -> None:
        """Products under way are waited for, or fail. Twice is once."""
        if self.pid != os.getpid():
            self._close_in_child()
            return
        self.exchange.forget()
        while wait and self.is_open:
            with self._lock:
                oldest = self._oldest()
            if oldest is None:
                break
            self.wait(oldest, None)
        with self._lock:
            abandoned = self._end()
        self._wake_waiters(abandoned)
        self._bury()
        for future in abandoned:
            future._announce()

    def _end(self) -> list[Future]:
        """Under the lock: the session is over but for memory that arrays use."""
        abandoned = list(self._pending.values())
        self._pending.clear()
        for future in abandoned:
            future._settle(Disconnected("the connection was closed before it was done"), None)
        self.is_open = False
        self._shut_unless_used()
        for buffer in self._buffers - {mapping.buffer for mapping in self._mappings}:
            self._free(buffer)
        return abandoned

    def _close_in_child(self) -> None:
        """Lets go of the descriptors, lest the daemon takes the child for its parent."""
        self.is_open = False
        if not self._mappings and not self._is_torn():
            self._shut()

    def _shut_unless_used(self) -> None:
        """Under the lock: in the library, once nobody else needs it."""
        if not (self.is_open or self._mappings or self._readers):
            self._shut()

    def _shut(self) -> None:
        self._buffers.clear()
        self._named.clear()
        if self._handle is not None:
            handle, self._handle = self._handle, None
            self.library.gemmd_close(handle)

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None and not self._is_torn():
            self._shut()
        if getattr(self, "_wake", -1) >= 0:
            os.close(self._wake)

    def _is_torn(self) -> bool:
        """In a child: whether another thread was inside the library at the fork."""
        return self.pid != os.getpid() and self._lock.locked()

    def after_fork_in_child(self) -> None:
        self._state = threading.Lock()
        self._waiters.clear()
        self._led = None


def _after_fork_in_child() -> None:
    for session in list(_sessions):
        session.after_fork_in_child()


os.register_at_fork(after_in_child=_after_fork_in_child)
