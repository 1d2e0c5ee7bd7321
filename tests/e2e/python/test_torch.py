"""torch and CuPy on the daemon's GPU. Skipped where either or a real device is missing."""

import contextlib
import ctypes
import os
import socket
import subprocess
import sys
import tempfile
import unittest

import numpy as np
from support import DEVICE, DaemonTest, assert_is_product, values

import gemmd
from gemmd import _library

try:
    import torch
except ImportError:
    torch = None
try:
    import cupy
except ImportError:
    cupy = None

HAS_DEVICE = DEVICE != "cpu" and "fake" not in os.environ.get("GEMMD_LIBCUDA", "")
if not HAS_DEVICE or (torch is None and cupy is None):
    print("skipped: needs a CUDA device in GEMMD_TEST_DEVICE, and torch or CuPy")
    sys.exit(77)

DTYPES = ("fp16", "fp32", "fp64", "int8", "int32")


def random_of(random: np.random.Generator, shape: tuple, dtype: str) -> np.ndarray:
    if dtype == "int32":
        return random.integers(-1000, 1000, shape, np.int32)
    return values(random, shape, dtype)


class Trusted(DaemonTest):
    """A daemon that takes legacy handles from this user."""

    @classmethod
    def setUpClass(cls) -> None:
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(f"[uid {os.getuid()}]\ntrusts-ipc = yes\n")
            file.flush()
            cls.arguments = ("--config", file.name)
            super().setUpClass()


def bf16_bits(tensor) -> np.ndarray:
    return tensor.cpu().view(torch.int16).numpy().view(np.uint16)


@unittest.skipIf(torch is None, "no torch")
class TorchOut(DaemonTest):
    def test_a_buffer_is_a_tensor_by_dlpack(self) -> None:
        for dtype in DTYPES:
            with self.subTest(dtype=dtype):
                source = random_of(self.random, (40, 24), dtype)
                array = self.connection.device_buffer((40, 24), dtype, exportable=True)
                tensor = torch.from_dlpack(array)
                self.assertEqual(tuple(tensor.stride()), (24, 1))
                tensor.copy_(torch.from_numpy(source))
                torch.cuda.synchronize()
                np.testing.assert_array_equal(array.download(), source)
                array.upload(source[::-1])
                np.testing.assert_array_equal(torch.from_dlpack(array).cpu().numpy(), source[::-1])

    def test_bf16_too(self) -> None:
        source = values(self.random, (16, 16), "bf16")
        array = self.connection.device_buffer((16, 16), "bf16", exportable=True).upload(source)
        tensor = torch.from_dlpack(array)
        self.assertEqual(tensor.dtype, torch.bfloat16)
        np.testing.assert_array_equal(bf16_bits(tensor), source)
        tensor.mul_(-1)
        torch.cuda.synchronize()
        np.testing.assert_array_equal(np.asarray(array.download()).view(np.uint16),
                                      source ^ 0x8000)

    def test_and_by_the_cuda_array_interface(self) -> None:
        array = self.connection.device_buffer((8, 8), exportable=True)
        tensor = torch.as_tensor(array, device="cuda")
        self.assertEqual(tensor.data_ptr(), torch.from_dlpack(array).data_ptr())
        tensor.fill_(3)
        torch.cuda.synchronize()
        self.assertTrue((array.download() == 3).all())

    def test_products_read_and_write_the_tensor(self) -> None:
        a, b = (values(self.random, (64, 64), "fp32") for _ in range(2))
        buffers = [self.connection.device_buffer((64, 64), exportable=True) for _ in range(3)]
        x, y, out = (torch.from_dlpack(buffer) for buffer in buffers)
        x.copy_(torch.from_numpy(a))
        y.copy_(torch.from_numpy(b))
        self.assertIs(self.connection.matmul(x, y.T, out=out), out)
        assert_is_product(out.cpu().numpy(), a, b.T, "fp32")
        self.assertEqual(self.connection.status()["buffers"]["count"], 3)

    def test_a_tensor_keeps_the_memory(self) -> None:
        tensor = torch.from_dlpack(self.connection.device_buffer((512, 512), exportable=True))
        tensor.fill_(7)
        self.connection.close()
        self.assertTrue(bool((tensor == 7).all()))
        del tensor

    def test_plain_memory_needs_trust(self) -> None:
        with self.assertRaises(gemmd.PermissionDenied) as caught:
            self.connection.matmul(torch.ones(4, 4, device="cuda"), np.eye(4, dtype="f4"))
        self.assertIn("trusts-ipc", caught.exception.message)

    def test_expandable_segments_go_by_descriptor_or_say_why_not(self) -> None:
        program = (
            "import sys, numpy as np, torch, gemmd\n"
            "with gemmd.connect(sys.argv[1]) as c:\n"
            "    a = torch.arange(64., device='cuda').reshape(8, 8)\n"
            "    try:\n"
            "        d = c.matmul(a, a)\n"
            "        assert np.array_equal(d, (a @ a).cpu().numpy()); print('by descriptor')\n"
            "    except gemmd.Error as error: print(type(error).__name__, error)\n")
        environment = {**os.environ, "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
        text = subprocess.run([sys.executable, "-c", program, self.daemon.socket],
                              env=environment, capture_output=True, text=True, check=True).stdout
        print("\nexpandable segments:", text.strip())
        self.assertRegex(text, "by descriptor|exportable=True")


@unittest.skipIf(torch is None, "no torch")
class TorchIn(Trusted):
    def test_tensors_are_operands_and_results_as_they_lie(self) -> None:
        for dtype in ("fp16", "fp32"):
            a, b = (values(self.random, (96, 96), dtype) for _ in range(2))
            x, y = torch.from_numpy(a).cuda(), torch.from_numpy(b).cuda()
            out = torch.empty_like(x)
            self.connection.matmul(x[:, 8:72], y[8:72], out=out)
            assert_is_product(out.cpu().numpy(), a[:, 8:72], b[8:72], dtype)
        self.assertLess(self.connection.status()["buffers"]["count"], 3)

    def test_bf16_needs_no_word(self) -> None:
        a = values(self.random, (32, 32), "bf16")
        x = torch.from_numpy(a.view(np.int16)).cuda().view(torch.bfloat16)
        out = torch.empty(32, 32, device="cuda")
        self.connection.matmul(x, x, out=out, out_dtype="fp32")
        assert_is_product(out.cpu().numpy(), a, a, "bf16", "fp32")

    def late_ones(self, stream):
        """A tensor that becomes ones when the stream gets there, much later."""
        tensor = torch.zeros(256, 256, device="cuda")
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(200_000_000)  # 0.1 s
            tensor.fill_(1)
        return tensor

    def product(self, tensor, stream) -> np.ndarray:
        with torch.cuda.stream(stream):
            return self.connection.matmul(tensor, np.eye(256, dtype="f4"))

    def test_the_producers_stream_is_waited_for(self) -> None:
        self.product(torch.zeros(256, 256, device="cuda"), torch.cuda.Stream())  # all is warm
        for stream in (torch.cuda.Stream(), torch.cuda.default_stream()):
            self.assertTrue((self.product(self.late_ones(stream), stream) == 1).all())

    def test_without_that_wait_the_product_is_too_early(self) -> None:
        """Else the test above proves nothing."""
        from gemmd import _memory

        stream = torch.cuda.Stream()
        self.product(torch.zeros(256, 256, device="cuda"), stream)
        wait = _memory.wait_for_producer
        _memory.wait_for_producer = lambda view: None
        try:
            early = self.product(self.late_ones(stream), stream)
        finally:
            _memory.wait_for_producer = wait
        torch.cuda.synchronize()
        self.assertTrue((early == 0).all())


@unittest.skipIf(cupy is None, "no CuPy")
class CuPy(Trusted):
    def test_a_buffer_is_an_array(self) -> None:
        array = self.connection.device_buffer((8, 8), exportable=True)
        for there in (cupy.from_dlpack(array), cupy.asarray(array)):
            there[...] = 5
            cupy.cuda.Device().synchronize()
            self.assertTrue((array.download() == 5).all())
            array.upload(np.zeros((8, 8)))

    def test_arrays_are_operands_and_results(self) -> None:
        a = values(self.random, (32, 32), "fp32")
        x, out = cupy.asarray(a), cupy.empty((32, 32), cupy.float32)
        self.connection.matmul(x, x, out=out)
        assert_is_product(cupy.asnumpy(out), a, a, "fp32")


class Lies(DaemonTest):
    """What a client says is device memory, and is not."""

    def refused(self, fd: int, size: int = 4096, offset: int = 0) -> gemmd.Error:
        record = _library.ImportRecord(size=ctypes.sizeof(_library.ImportRecord), fd=fd,
                                       bytes=size, offset=offset, mode=0o600)
        session = self.connection._session
        with self.assertRaises(gemmd.InvalidArgument) as caught:
            session.obtain(session.library.gemmd_buffer_import, ctypes.byref(record),
                           is_named=False)
        print("\n ", str(caught.exception))
        return caught.exception

    def test_a_descriptor_of_something_else_is_refused_and_nobody_notices(self) -> None:
        memfd = os.memfd_create("lie")
        os.ftruncate(memfd, 4 << 20)
        pair = socket.socketpair()
        self.addCleanup(pair[0].close)
        self.addCleanup(pair[1].close)
        pipe = os.pipe()
        devices = [os.open(path, os.O_RDWR) for path in
                   ("/dev/null", "/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia-uvm")
                   if os.path.exists(path)]
        for fd in (memfd, pair[0].fileno(), pipe[0], pipe[1], *devices):
            self.assertEqual(self.refused(fd).argument, "fd")
        self.assertEqual(self.connection.status()["worker"]["deaths"], 0)
        eye = np.eye(4, dtype="f4")
        np.testing.assert_array_equal(self.connection.matmul(eye, eye), eye)

    def test_a_part_of_an_allocation_can_be_lent(self) -> None:
        array = self.connection.device_buffer((3 << 20,), np.uint8, exportable=True)
        array.upload(np.arange(3 << 20, dtype=np.uint32).astype(np.uint8))
        record = _library.ExportRecord(size=ctypes.sizeof(_library.ExportRecord))
        session = self.connection._session
        session.call(session.library.gemmd_buffer_export, array._memory.mapping.buffer,
                     ctypes.byref(record))
        with contextlib.closing(os.fdopen(record.fd, "rb")):
            for offset, size in ((0, 3 << 20), (512, 100), ((2 << 20) + 256, 4096)):
                part = _library.ImportRecord(
                    size=ctypes.sizeof(_library.ImportRecord), fd=record.fd, bytes=size,
                    offset=offset, allocation=record.allocation, mode=0o600)
                with self.subTest(offset=offset, size=size):
                    mapping = session.obtain(session.library.gemmd_buffer_import,
                                             ctypes.byref(part), is_named=False)
                    got = (ctypes.c_ubyte * size)()
                    session.call(session.library.gemmd_buffer_read, mapping.buffer, 0, got, size)
                    self.assertEqual(bytes(got)[:8], bytes((offset + i) % 256 for i in range(8)))

    def test_a_size_that_is_not_there_is_refused(self) -> None:
        array = self.connection.device_buffer((1024,), exportable=True)
        record = _library.ExportRecord(size=ctypes.sizeof(_library.ExportRecord))
        session = self.connection._session
        session.call(session.library.gemmd_buffer_export, array._memory.mapping.buffer,
                     ctypes.byref(record))
        with contextlib.closing(os.fdopen(record.fd, "rb")):
            print("\n  descriptor is", os.readlink(f"/proc/self/fd/{record.fd}"))
            for size, offset in ((record.allocation + 1, 0), (4096, record.allocation),
                                 (1 << 40, 0)):
                self.assertEqual(self.refused(record.fd, size, offset).argument, "size")
        self.assertEqual(self.connection.status()["worker"]["deaths"], 0)


if __name__ == "__main__":
    unittest.main()
