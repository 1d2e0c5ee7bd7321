"""A private daemon, and what a right answer is. The tests are plain unittest."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from collections.abc import Iterator

try:
    import numpy as np
except ImportError:
    print("skipped: this Python has no numpy (Debian: python3-numpy)")
    sys.exit(77)

import gemmd

DEVICE = os.environ.get("GEMMD_TEST_DEVICE") or "cpu"
DAEMON = os.environ.get("GEMMD_TEST_DAEMON") or os.environ["GEMMD_BUILT_DAEMON"]

# AddressSanitizer's allocator, unlike the C library's, does not release what other threads had locked
# at a fork (GCC 12; LLVM does since 18): a child of a process with threads can hang in any free().
MALLOC_SURVIVES_FORK = "libasan" not in os.environ.get("LD_PRELOAD", "")


def _daemon_environment() -> dict[str, str]:
    """Without what Python needs for a sanitized library, and with the leak check it had to lose."""
    environment = {**os.environ}
    environment.pop("LD_PRELOAD", None)
    if "ASAN_OPTIONS" in environment:
        options = environment["ASAN_OPTIONS"].replace("detect_leaks=0", "detect_leaks=1")
        environment["ASAN_OPTIONS"] = options
    return environment


_prctl = ctypes.CDLL(None).prctl


def _end_with_this_process() -> None:
    _prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def _state_of(pid: int) -> str:
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
        return file.read().rpartition(")")[2].split()[0]


class Daemon:
    """Its own directory, socket and cache, on $GEMMD_TEST_DEVICE (cpu when unset)."""

    def __init__(self, *arguments: str) -> None:
        self.directory = tempfile.mkdtemp(prefix="gemmd-test-")
        self.socket = os.path.join(self.directory, "socket")
        self.arguments = arguments
        self.start()

    def start(self) -> None:
        ready, told = os.pipe()
        with open(os.path.join(self.directory, "log"), "ab") as log:
            self.process = subprocess.Popen(
                [DAEMON, "--config", "/dev/null", "--socket", self.socket, "--device", DEVICE,
                 "--ready-fd", str(told), "--cache", os.path.join(self.directory, "cache"),
                 "--state", os.path.join(self.directory, "state"),
                 "--compile-time-limit", "100",  # a busy machine is no hanging compiler
                 *self.arguments],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=[told],
                env=_daemon_environment(), preexec_fn=_end_with_this_process)
        os.close(told)
        byte = os.read(ready, 1)
        os.close(ready)
        if not byte:
            self.process.wait()
            raise AssertionError("the daemon did not get ready:\n" + self.log())

    def log(self) -> str:
        with open(os.path.join(self.directory, "log"), encoding="utf-8", errors="replace") as file:
            return file.read()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """Asserts that it ends in order."""
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(60)
        log = self.log()
        shutil.rmtree(self.directory)
        assert status == 0, f"the daemon ended with {status}:\n{log}"

    def connect(self) -> gemmd.Connection:
        return gemmd.connect(self.socket)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """The worker stands still: what is submitted stays under way. For less than the 20 s after
        which the daemon finds that a CPU's hangs."""
        with self.connect() as connection:
            worker = connection.status()["worker"]["pid"]
        os.kill(worker, signal.SIGSTOP)
        while _state_of(worker) != "T":
            time.sleep(0.001)
        try:
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):  # it may have ended with the daemon
                os.kill(worker, signal.SIGCONT)


class DaemonTest(unittest.TestCase):
    """One daemon per class, one connection per test."""

    arguments: tuple = ()

    @classmethod
    def setUpClass(cls) -> None:
        cls.daemon = Daemon(*cls.arguments)
        cls.addClassCleanup(cls.daemon.stop)

    def setUp(self) -> None:
        self.connection = self.daemon.connect()
        self.addCleanup(self.connection.close)
        self.random = np.random.default_rng(7)


def is_cpu() -> bool:
    return DEVICE == "cpu"


# --- values ----------------------------------------------------------------------------------

INPUTS = ("bf16", "fp16", "fp32", "fp64", "int8")
PAIRS = [(name, None) for name in INPUTS] + [("bf16", "fp32"), ("fp16", "fp32")]
_NUMPY = {"fp16": np.float16, "fp32": np.float32, "fp64": np.float64, "int8": np.int8,
          "int32": np.int32}


def values(random: np.random.Generator, shape: tuple, dtype: str) -> np.ndarray:
    """bf16 comes as bits, so that the tests are the same with and without ml_dtypes."""
    if dtype == "int8":
        return random.integers(-128, 128, shape, np.int8)
    uniform = random.uniform(-1, 1, shape)
    if dtype == "bf16":
        return gemmd.to_bf16(uniform).view(np.uint16)
    return uniform.astype(_NUMPY[dtype])


def exact(array: np.ndarray, dtype: str) -> np.ndarray:
    """As float64, in which every element is exact."""
    if dtype == "bf16":
        return gemmd.from_bf16(array).astype(np.float64)
    return np.asarray(array).astype(np.float64)


# daemon/core/dtype.c: half the distance from 1 to the next number, and the smallest subnormal.
_ROUNDOFF = {"bf16": (2.0**-8, 2.0**-133), "fp16": (2.0**-11, 2.0**-24),
             "fp32": (2.0**-24, 2.0**-149), "fp64": (2.0**-53, 2.0**-1074), "int32": (0.0, 0.0)}


def bound(dtype: str, out: str, k: int, reference, absolute_ab, absolute_c=0.0):
    """dtype_error_bound() of daemon/core/dtype.c: u_out |D| + 4 K u |A||B| + 4 u |C| + tiny."""
    if dtype == "int8":
        return np.zeros_like(reference)
    unit, tiny = _ROUNDOFF[out]
    accumulator = 4 * (2.0**-53 if dtype == "fp64" else 2.0**-24)
    return unit * abs(reference) + accumulator * k * absolute_ab + accumulator * absolute_c + tiny


def default_output(dtype: str) -> str:
    return "int32" if dtype == "int8" else dtype


def assert_is_product(given, a, b, dtype: str, out: str | None = None, *, alpha=1.0, beta=0.0,
                      c=None) -> None:
    """Against float64, element by element, with the project's bound. Integers wrap."""
    out = out or default_output(dtype)
    a, b = exact(a, dtype), exact(b, dtype)
    reference = alpha * np.matmul(a, b)
    addend = beta * exact(c, out) if beta else 0.0
    reference = reference + addend
    absolute = abs(alpha) * np.matmul(abs(a), abs(b))
    if out == "int32":
        reference = (reference.astype(np.int64) & 0xFFFFFFFF).astype(np.uint32).view(np.int32)
    value = exact(given, out)
    assert value.shape == reference.shape, (value.shape, reference.shape)
    # fp64 is judged by fp64, which errs as much.
    slack = 2 if dtype == "fp64" else 1
    allowed = slack * bound(dtype, out, a.shape[-1], reference, absolute, abs(addend))
    wrong = ~(abs(value - reference) <= allowed)
    assert not wrong.any(), (
        f"{dtype}->{out}: {wrong.sum()} of {wrong.size} wrong, the first at "
        f"{np.argwhere(wrong)[0]}: {value[wrong][0]} for {reference[wrong][0]}")
