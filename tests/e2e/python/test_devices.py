"""Device memory between the daemon and other libraries of this process. On the CPU, and over the
fake driver, it is host memory, so that both sides can be looked at; tests/gpu/share.py does it with
torch on a device."""

import ctypes
import gc
import os
import tempfile
import unittest
import unittest.mock

import numpy as np
from support import DaemonTest, assert_is_product, is_cpu, values

import gemmd
from gemmd import _interop


def at(address: int, shape: tuple, dtype=np.float32) -> np.ndarray:
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = (ctypes.c_ubyte * size).from_address(address)
    return np.frombuffer(raw, dtype).reshape(shape)


def seen(array: gemmd.DeviceArray) -> np.ndarray:
    """What a library sees that is given the array."""
    if is_cpu():
        return _interop.as_host(array, "array").array
    view = _interop.as_device(array, "array")
    return at(view.low, view.shape, view.dtype)


class Tensor:
    """A library's device array, such as torch's: by DLPack."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.streams: list = []

    def __dlpack__(self, stream=None):
        self.streams.append(stream)
        return self.array.__dlpack__()

    def __dlpack_device__(self) -> tuple:
        return (2, 0)


class Plain:
    """By __cuda_array_interface__ alone."""

    def __init__(self, array: np.ndarray, **more) -> None:
        self.__cuda_array_interface__ = {**array.__array_interface__, "version": 3, **more}


class Out(DaemonTest):
    def test_what_is_written_there_is_in_the_next_product(self) -> None:
        w = self.connection.device_buffer((8, 5), exportable=True)
        here, a = seen(w), values(self.random, (3, 8), "fp32")
        for _ in range(3):
            weights = values(self.random, (8, 5), "fp32")
            here[...] = weights
            assert_is_product(a @ w, a, weights, "fp32")

    def test_products_under_way_are_waited_for(self) -> None:
        a = values(self.random, (300, 300), "fp32")
        out = self.connection.device_buffer((300, 300), exportable=True)
        for _ in range(5):
            out.upload(np.zeros((300, 300)))
            self.connection.submit(a, a, out=out)
            assert_is_product(seen(out).copy(), a, a, "fp32")

    def test_views_lie_where_they_are(self) -> None:
        x = self.connection.device_buffer((4, 6, 10), exportable=True)
        source = values(self.random, (4, 6, 10), "fp32")
        x.upload(source)
        base = seen(x).ctypes.data
        for index in (np.s_[1], np.s_[:, 2:4], np.s_[2, 1:, 3:7]):
            capsule = x[index].__dlpack__()
            tensor = _interop._DLTensor.from_address(_interop._pointer_of(capsule, b"dltensor"))
            self.assertEqual(tensor.data - base, source[index].ctypes.data - source.ctypes.data)
            shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
            steps = tuple(4 * tensor.strides[i] for i in range(tensor.ndim))
            self.assertEqual((shape, steps), (source[index].shape, source[index].strides))

    def test_bf16_is_named_so(self) -> None:
        x = self.connection.device_buffer((4, 4), "bf16", exportable=True)
        capsule = x.__dlpack__()
        tensor = _interop._DLTensor.from_address(_interop._pointer_of(capsule, b"dltensor"))
        self.assertEqual((tensor.code, tensor.bits), (4, 16))

    def test_what_was_not_made_for_it_says_so(self) -> None:
        x = self.connection.device_buffer((4, 4))
        with self.assertRaisesRegex(BufferError, "exportable"):
            x.__dlpack__()
        self.assertFalse(hasattr(x, "__cuda_array_interface__"))
        named = self.connection.device_buffer((4, 4), name="py.out", exportable=True)
        with self.daemon.connect() as other:
            reader = other.open_buffer("py.out", (4, 4), "fp32")
            with self.assertRaisesRegex(BufferError, "reading only"):
                reader.__dlpack__()
            writer = other.open_buffer("py.out", (4, 4), "fp32", writable=True)
            writer.upload(np.full((4, 4), 3))
            np.testing.assert_array_equal(seen(named), np.full((4, 4), 3))
            np.testing.assert_array_equal(seen(writer), np.full((4, 4), 3))
        with self.assertRaises(BufferError):
            named.__dlpack__(copy=True)
        with self.assertRaises(BufferError):
            named.__dlpack__(dl_device=(7, 0))

    def test_what_cannot_be_mapped_says_so(self) -> None:
        if not is_cpu():
            self.skipTest("its memory is mapped by CUDA")
        x = self.connection.device_buffer((4, 4), exportable=True)
        refuse = unittest.mock.patch("mmap.mmap", side_effect=OSError(12, "no address space"))
        with refuse, self.assertRaisesRegex(BufferError, "no address space"):
            x.__dlpack__()

    def test_memory_lives_as_long_as_somebody_has_it(self) -> None:
        x = self.connection.device_buffer((4, 4), exportable=True).upload(np.eye(4))
        capsule = x.__dlpack__()
        address = _interop._DLTensor.from_address(
            _interop._pointer_of(capsule, b"dltensor")).data
        self.assertEqual(len(_interop._given), 1)
        del x
        gc.collect()
        self.assertEqual(self.connection.status()["buffers"]["count"], 1)
        np.testing.assert_array_equal(at(address, (4, 4)), np.eye(4))
        del capsule
        gc.collect()
        self.assertEqual(len(_interop._given), 0)
        self.assertEqual(self.connection.status()["buffers"]["count"], 0)

    def test_it_comes_back_as_the_buffer_it_is(self) -> None:
        if is_cpu():
            self.skipTest("host memory comes back as such")
        x = self.connection.device_buffer((6, 6), exportable=True)
        source = values(self.random, (6, 6), "fp32")
        x.upload(source)
        view = Tensor(seen(x)[1:4])
        d = self.connection.matmul(view, x)
        assert_is_product(d, source[1:4], source, "fp32")
        self.assertEqual(self.connection.status()["buffers"]["count"], 1)


@unittest.skipIf(is_cpu(), "this process has no device memory")
class In(DaemonTest):
    def setUp(self) -> None:
        from gemmd._cuda import driver

        super().setUp()
        self.driver = driver()
        self.allocations: list = []

    def tearDown(self) -> None:
        for address, size, is_plain in self.allocations:
            if is_plain:
                self.driver.call("cuMemFree", ctypes.c_uint64(address))

    def allocate(self, size: int) -> int:
        """As cudaMalloc: with a legacy handle."""
        address = ctypes.c_uint64()
        self.driver.call("cuMemAlloc", ctypes.byref(address), ctypes.c_size_t(size))
        self.allocations.append((address.value, size, True))
        return address.value

    def segment(self) -> np.ndarray:
        """1 MiB as of an expandable segment: with a descriptor."""
        fd = os.memfd_create("fake-device-memory")
        os.ftruncate(fd, 2 << 20)
        address = self.driver.map(fd, 2 << 20, 0)
        os.close(fd)
        return at(address, (2 << 18,))

    def test_tensors_are_operands_and_results(self) -> None:
        memory = self.segment()
        a, b, d = (memory[i:i + 64].reshape(8, 8) for i in (64, 128, 256))
        a[...], b[...] = values(self.random, (8, 8), "fp32"), values(self.random, (8, 8), "fp32")
        out = Tensor(d)
        self.assertIs(self.connection.matmul(Tensor(a), Tensor(b), out=out), out)
        assert_is_product(d, a, b, "fp32")
        self.assertEqual(self.connection.status()["buffers"]["count"], 1)  # one allocation, once
        assert_is_product(self.connection.matmul(Tensor(a[:, 2:5]), Tensor(b[2:5])), a[:, 2:5],
                          b[2:5], "fp32")
        assert_is_product(self.connection.matmul(Plain(a), np.asarray(b.T)), a, b.T, "fp32")
        self.assertEqual(self.connection.status()["buffers"]["count"], 1)

    def test_the_producers_stream_is_waited_for(self) -> None:
        memory = self.segment()
        a, waited = memory[:16].reshape(4, 4), []
        wait_for = self.driver.wait_for
        self.driver.wait_for = waited.append
        self.addCleanup(setattr, self.driver, "wait_for", wait_for)
        tensor = Tensor(a)
        self.connection.matmul(tensor, np.eye(4, dtype="f4"))
        self.assertEqual(tensor.streams, [1])  # told to be ready on the default stream
        self.assertEqual(waited, [1])
        for stream, expected in ((None, []), (7, [7]), (1, [1])):
            waited.clear()
            self.connection.matmul(Plain(a, stream=stream), np.eye(4, dtype="f4"))
            self.assertEqual(waited, expected)
        waited.clear()
        self.connection.matmul(Plain(a, version=2), np.eye(4, dtype="f4"))
        self.assertEqual(waited, [1])

    def test_memory_without_a_descriptor_needs_trust(self) -> None:
        a = at(self.allocate(4096), (32, 32))
        with self.assertRaises(gemmd.PermissionDenied) as caught:
            self.connection.matmul(Tensor(a), np.eye(32, dtype="f4"))
        self.assertEqual(caught.exception.argument, "a")
        self.assertIn("trusts-ipc", caught.exception.message)

    def test_what_cannot_be_shared_says_what_to_do(self) -> None:
        stranger = Tensor(np.ones((4, 4), np.float32))  # of no allocation
        with self.assertRaisesRegex(gemmd.Unsupported, "exportable=True"):
            self.connection.matmul(stranger, np.eye(4, dtype="f4"))
        memory = self.segment()
        with self.assertRaises(gemmd.Unsupported):
            self.connection.matmul(Plain(memory[15::-1].reshape(4, 4)), np.eye(4, dtype="f4"))

    def test_few_imports_are_kept(self) -> None:
        from gemmd._exchange import IMPORTS_KEPT

        eye = np.eye(4, dtype="f4")
        segments = [self.segment() for _ in range(IMPORTS_KEPT + 5)]
        for memory in segments:
            memory[:16] = 2
            d = self.connection.matmul(Tensor(memory[:16].reshape(4, 4)), eye)
            self.assertTrue((d == 2).all())
        self.assertEqual(self.connection.status()["buffers"]["count"], IMPORTS_KEPT)

    def test_empty_ones_are_empty(self) -> None:
        memory = self.segment()
        d = self.connection.matmul(Tensor(memory[:0].reshape(0, 4)), np.eye(4, dtype="f4"))
        self.assertEqual(d.shape, (0, 4))


@unittest.skipIf(is_cpu(), "this process has no device memory")
class InTrusted(In):
    @classmethod
    def setUpClass(cls) -> None:
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(f"[uid {os.getuid()}]\ntrusts-ipc = yes\n")
            file.flush()
            cls.arguments = ("--config", file.name)
            super().setUpClass()

    def test_memory_without_a_descriptor_needs_trust(self) -> None:
        a = at(self.allocate(4096), (32, 32))
        for _ in range(2):
            a[...] = values(self.random, (32, 32), "fp32")
            d = self.connection.matmul(Tensor(a[2:9]), Tensor(a))
            assert_is_product(d, a[2:9], a, "fp32")
        self.assertEqual(self.connection.status()["buffers"]["count"], 1)

    def test_new_memory_at_an_old_address_is_not_the_old(self) -> None:
        first = self.allocate(4096)
        eye = np.eye(4, dtype="f4")
        at(first, (4, 4))[...] = 1
        self.connection.matmul(Tensor(at(first, (4, 4))), eye)
        self.driver.call("cuMemFree", ctypes.c_uint64(first))
        self.allocations.clear()
        second = self.allocate(4096)
        at(second, (4, 4))[...] = 5
        d = self.connection.matmul(Tensor(at(second, (4, 4))), eye)
        self.assertEqual(second, first)
        self.assertTrue((d == 5).all())


if __name__ == "__main__":
    unittest.main()
