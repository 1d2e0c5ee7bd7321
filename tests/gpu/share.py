#!/usr/bin/env python3
"""share.py [ROWS COLUMNS]: a torch process and a numpy process, in PID namespaces of their own, use
one named weight buffer, and nobody copies it.

The writer makes the buffer, maps it as a tensor and writes weights there; the reader multiplies by
the buffer's name and judges the products. That each product is of the weights that were written
last, without an upload, and that mapping takes no device memory, shows that there is one copy. The
writer is killed in the end, and the reader's weights are still there.

Runs against a daemon of its own on $GEMMD_TEST_DEVICE. On the CPU or the fake driver, where the
memory is the host's, the writer's tensor is one of the CPU's, or without torch numpy's array. Needs
root, to make namespaces. Exit status 77: skipped.
"""

import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, os.pardir, "e2e", "python"))

import numpy as np  # noqa: E402
import support  # noqa: E402

import gemmd  # noqa: E402

NAME = "share.weights"
ROUNDS = 4
# CUDA looks itself up in /proc, which must be the namespace's own (else cuInit fails with 304).
UNSHARE = ("--pid", "--fork", "--mount-proc", "--kill-child")


def weights(seed: int, shape: tuple) -> np.ndarray:
    """The same in both processes: bits of bf16, the sign and a few low bits at random."""
    random = np.random.default_rng(seed)
    return random.integers(0x3F00, 0x3F80, shape, np.uint16) | (
        random.integers(0, 2, shape, np.uint16) << 15)


def namespace() -> str:
    return os.readlink("/proc/self/ns/pid")


# --- the writer ------------------------------------------------------------------------------


class TorchMemory:
    """The buffer as a torch tensor."""

    def __init__(self) -> None:
        import torch

        self.torch = torch
        torch.cuda.init()
        torch.empty(1, device="cuda")  # the context's own memory is not the buffer's
        self.what = f"torch {torch.__version__}"

    def free_bytes(self) -> int:
        return self.torch.cuda.mem_get_info()[0]

    def map(self, array: gemmd.DeviceArray) -> None:
        self.tensor = self.torch.from_dlpack(array)
        assert self.tensor.is_cuda and self.tensor.dtype == self.torch.bfloat16

    def write(self, bits: np.ndarray) -> None:
        self.tensor.copy_(self.torch.from_numpy(bits.view(np.int16)).view(self.torch.bfloat16))
        self.torch.cuda.synchronize()


class HostMemory:
    """Where the device's memory is the host's: by torch, where that is installed."""

    def __init__(self) -> None:
        try:
            import torch

            self.torch = torch
            self.what = f"torch {torch.__version__}"
        except ImportError:
            self.torch = None
            self.what = f"numpy {np.__version__}"

    def free_bytes(self) -> int:
        return 0

    def map(self, array: gemmd.DeviceArray) -> None:
        from gemmd import _interop

        view = _interop.as_device(array, "array")
        if view is None:
            self.array = _interop.as_host(array, "array").array
            return
        import ctypes

        raw = (ctypes.c_ubyte * array.nbytes).from_address(view.low)
        self.array = np.frombuffer(raw, np.uint16).reshape(array.shape)

    def write(self, bits: np.ndarray) -> None:
        if self.torch is None:
            self.array.view(np.uint16)[...] = bits
            return
        tensor = self.torch.from_numpy(self.array.view(np.int16))
        assert tensor.data_ptr() == self.array.ctypes.data, "torch has a copy"
        tensor.copy_(self.torch.from_numpy(bits.view(np.int16)))


def write(path: str, shape: tuple) -> None:
    is_host = support.is_cpu() or "fake" in os.environ.get("GEMMD_LIBCUDA", "")
    memory = HostMemory() if is_host else TorchMemory()
    with gemmd.connect(path) as connection:
        before = memory.free_bytes()
        array = connection.device_buffer(shape, "bf16", name=NAME, mode=0o644, exportable=True)
        made = memory.free_bytes()
        memory.map(array)
        mapped = memory.free_bytes()
        say(f"{memory.what} pid={os.getpid()} {namespace()} made={before - made} "
            f"mapped={made - mapped}")
        for line in sys.stdin:
            memory.write(weights(int(line), shape))
            say("written")


# --- the reader ------------------------------------------------------------------------------


def read(path: str, shape: tuple) -> None:
    with gemmd.connect(path) as connection:
        array = connection.open_buffer(NAME, shape, "bf16")
        say(f"numpy {np.__version__} pid={os.getpid()} {namespace()}")
        for line in sys.stdin:
            seed = int(line)
            x = support.values(np.random.default_rng(seed + 1000), (16, shape[0]), "bf16")
            d = connection.matmul(x, array, dtype="bf16", out_dtype="fp32")
            support.assert_is_product(d, x, weights(seed, shape), "bf16", "fp32")
            say("right")


# --- both ------------------------------------------------------------------------------------


def say(text: str) -> None:
    print(text, flush=True)


class Child:
    """A role in a PID namespace of its own."""

    def __init__(self, role: str, path: str, shape: tuple) -> None:
        self.process = subprocess.Popen(
            ["unshare", *UNSHARE, sys.executable, __file__, role, path,
             *map(str, shape)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.greeting = self._line()

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the process ended"
        return line.strip()

    def ask(self, seed: int) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{seed}\n")
        self.process.stdin.flush()
        return self._line()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def number(text: str, name: str) -> int:
    return int(text.split(f"{name}=")[1].split()[0])


def check(daemon: support.Daemon, shape: tuple) -> None:
    size = 2 * shape[0] * shape[1]
    writer = Child("write", daemon.socket, shape)
    reader = Child("read", daemon.socket, shape)
    say(f"weights: {shape[0]} x {shape[1]} bf16, {size} bytes")
    say(f"writer:  {writer.greeting}")
    say(f"reader:  {reader.greeting}")
    ours = namespace()
    spaces = {ours, *(child.greeting.split()[3] for child in (writer, reader))}
    assert len(spaces) == 3, f"not three namespaces: {spaces}"
    assert all(space.startswith("pid:[") for space in spaces), f"no namespaces: {spaces}"
    assert number(writer.greeting, "mapped") < size / 8, "mapping took device memory"
    for seed in range(ROUNDS):
        assert (writer.ask(seed), reader.ask(seed)) == ("written", "right")
        say(f"round {seed}: {'torch' if 'torch' in writer.greeting else 'numpy'} wrote in place, "
            "the next product by name is right")
    with daemon.connect() as watcher:
        buffers = watcher.status()["buffers"]
        say(f"daemon:  device_bytes={buffers['device_bytes']} of all buffers")
        assert size <= buffers["device_bytes"] < size + (4 << 20), "more than one copy"
        writer.end()
        while watcher.status()["clients"] > 2:
            pass
        assert reader.ask(ROUNDS - 1) == "right"
        say("writer killed: the reader's products are still right")
    reader.end()


def main() -> None:
    if len(sys.argv) == 5:
        role, path = {"write": write, "read": read}[sys.argv[1]], sys.argv[2]
        role(path, (int(sys.argv[3]), int(sys.argv[4])))
        return
    shape = (int(sys.argv[1]), int(sys.argv[2])) if len(sys.argv) == 3 else (512, 768)
    if subprocess.run(["unshare", *UNSHARE, "true"], stderr=subprocess.DEVNULL).returncode:
        print("skipped: PID namespaces cannot be made here")
        sys.exit(77)
    daemon = support.Daemon()
    check(daemon, shape)
    daemon.stop()
    say("one copy, shared across PID namespaces: yes")


if __name__ == "__main__":
    main()
