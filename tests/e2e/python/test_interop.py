"""Arrays of others, in and out, by the protocols alone."""

import unittest

import numpy as np
from support import DaemonTest, assert_is_product, values

import gemmd


class Foreign:
    """What a library's CPU tensor shows: DLPack and nothing else."""

    def __init__(self, array: np.ndarray, device: int = 1) -> None:
        self.array = array
        self.device = device

    def __dlpack__(self, stream=None):
        return self.array.__dlpack__()

    def __dlpack_device__(self) -> tuple:
        return (self.device, 0)


class CudaArray:
    __cuda_array_interface__ = {"shape": (4, 4), "typestr": "<f4", "data": (4096, False),
                                "version": 3}


class Refuses(Foreign):
    def __dlpack__(self, stream=None):
        raise BufferError("needs grad")


class Interop(DaemonTest):
    def test_dlpack_tensors_are_taken_where_they_lie(self) -> None:
        from gemmd._interop import as_host

        for dtype in ("fp16", "fp32", "fp64", "int8"):
            a = values(self.random, (6, 20), dtype)
            for view in (a, a[:, 3:9], a.T, a[::2]):
                with self.subTest(dtype=dtype, strides=view.strides):
                    taken = as_host(Foreign(view), "a").array
                    self.assertEqual(taken.ctypes.data, view.ctypes.data)
                    np.testing.assert_array_equal(taken, view)
                    d = self.connection.matmul(Foreign(view), Foreign(view.T.copy()))
                    assert_is_product(d, view, view.T, dtype)

    def test_they_keep_the_memory_alive(self) -> None:
        from gemmd._interop import as_host

        taken = as_host(Foreign(np.full((50, 50), 3.0)), "a").array
        other = np.full((50, 50), 4.0)
        self.assertTrue((taken == 3).all() and (other == 4).all())

    def test_out_may_be_one(self) -> None:
        a, out = values(self.random, (5, 5), "fp32"), np.zeros((5, 5), np.float32)
        wrapped = Foreign(out)
        self.assertIs(self.connection.matmul(a, a, out=wrapped), wrapped)
        assert_is_product(out, a, a, "fp32")

    def test_device_memory_is_refused_clearly(self) -> None:
        one = np.eye(4, dtype=np.float32)
        for foreign in (Foreign(one, device=2), Foreign(one, device=10), CudaArray()):
            for arguments in ({"a": foreign, "b": one}, {"a": one, "b": foreign}):
                with self.assertRaises(gemmd.NotSupported) as caught:
                    self.connection.matmul(**arguments)
                self.assertIn("device_buffer", caught.exception.message)
        with self.assertRaises(gemmd.InvalidArgument) as caught:
            self.connection.matmul(Refuses(one), one)
        self.assertIn("needs grad", str(caught.exception))

    def test_shared_arrays_go_out_by_dlpack_and_by_interface(self) -> None:
        x = self.connection.array(np.eye(4))
        self.assertEqual(np.from_dlpack(x).ctypes.data, x.ctypes.data)
        self.assertEqual(x.__array_interface__["data"][0], x.ctypes.data)

    def test_lists_and_array_likes_are_copied(self) -> None:
        self.assertEqual(self.connection.matmul([[1.0, 2.0]], [[3.0], [4.0]])[0, 0], 11)


if __name__ == "__main__":
    unittest.main()
