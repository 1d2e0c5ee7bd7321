"""Shared host memory and device memory: no copies, right contents, names, permissions."""

import ctypes
import time
import unittest

import numpy as np
from support import DaemonTest, assert_is_product, values

import gemmd


class HostMemory(DaemonTest):
    def places(self, **arrays) -> dict:
        """Which operands of a product go by reference."""
        from gemmd._product import Arguments, prepare

        given = dict(out=None, c=None, alpha=1.0, beta=0.0, dtype=None, out_dtype=None) | arrays
        record = prepare(Arguments(**given), self.connection._session).record
        return {name: bool(getattr(record, name).buffer) for name in "abcd"}

    def test_new_arrays_are_ordinary_and_zero(self) -> None:
        for dtype in (np.float16, np.float32, "fp64", np.int8, "int32", np.int64, "bf16"):
            x = self.connection.empty((3, 5), dtype)
            self.assertTrue((x.view(np.uint8) == 0).all())
            self.assertTrue(x.flags.c_contiguous and x.flags.writeable and x.flags.aligned)
            self.assertEqual(x.shape, (3, 5))
        self.assertEqual(self.connection.empty(7).shape, (7,))
        self.assertEqual(self.connection.empty((4, 0)).size, 0)

    def test_products_use_them_and_their_views_in_place(self) -> None:
        x, y = self.connection.empty((16, 16)), self.connection.empty((16, 16))
        plain = np.ones((16, 16), np.float32)
        self.assertEqual(self.places(a=x, b=plain, out=y),
                         {"a": True, "b": False, "c": False, "d": True})
        self.assertEqual(self.places(a=x.T[2:, :8], b=y[3:11, ::1], out=y[:14] * 0, c=x[2:],
                                     beta=1.0),
                         {"a": True, "b": True, "c": True, "d": False})

    def test_views_are_found_by_address_whoever_made_them(self) -> None:
        x = self.connection.array(values(self.random, (8, 8), "fp32"))
        foreign = np.ctypeslib.as_array(ctypes.cast(x.ctypes.data, ctypes.POINTER(ctypes.c_float)),
                                        (8, 8))
        self.assertTrue(self.places(a=foreign, b=foreign)["a"])
        last = x[7:, 7:]
        self.assertTrue(self.places(a=last, b=last)["a"])

    def test_products_read_and_write_them_at_any_offset(self) -> None:
        room = self.connection.empty((40, 40), "fp64")
        room[...] = values(self.random, (40, 40), "fp64")
        before = room.copy()
        a, b, d = room[1:8, 3:12], room[20:29, 1:5], room[30:37, 30:34]
        self.connection.matmul(a, b, out=d)
        assert_is_product(d, before[1:8, 3:12], before[20:29, 1:5], "fp64")
        before[30:37, 30:34] = d
        np.testing.assert_array_equal(room, before)

    def test_a_chain_in_shared_memory_needs_no_waiting(self) -> None:
        x = self.connection.array(np.eye(32) * 2)
        steps = [self.connection.empty((32, 32), "fp64") for _ in range(20)]
        steps[0][...] = np.eye(32)
        futures = [self.connection.submit(left, x, out=right)
                   for left, right in zip(steps, steps[1:])]
        np.testing.assert_array_equal(futures[-1].result(), np.eye(32) * 2.0**19)

    def test_an_array_of_another_connection_is_copied(self) -> None:
        with self.daemon.connect() as other:
            x = other.array(np.eye(4))
            self.assertFalse(self.places(a=x, b=x)["a"])
            np.testing.assert_array_equal(self.connection.matmul(x, x), np.eye(4))

    def test_a_named_one_is_shared_between_connections(self) -> None:
        x = self.connection.empty((4, 4), name="py.host")
        with self.daemon.connect() as other:
            y = other.open_buffer("py.host", (4, 4), "fp32", writable=True)
            y[2, 3] = 5
            self.assertEqual(x[2, 3], 5)
            z = other.open_buffer("py.host", (2, 2))
            self.assertFalse(z.flags.writeable)
            with self.assertRaises(ValueError):
                z[0, 0] = 1
            with self.assertRaises(gemmd.InvalidArgument):
                read_only = other.open_buffer("py.host", (4, 4), "fp32")
                other.matmul(np.eye(4, dtype="f4"), y, out=read_only)


class Frozen(DaemonTest):
    def test_a_frozen_array_is_read_only_and_multiplies(self) -> None:
        x = self.connection.empty((40, 40))
        x[...] = values(self.random, (40, 40), "fp32")
        self.assertIs(self.connection.freeze(x), x)
        with self.assertRaises(ValueError):
            x[0, 0] = 1
        for _ in range(3):
            assert_is_product(self.connection.matmul(x[:10], x), x[:10], x, "fp32")
        with self.assertRaises(gemmd.InvalidArgument):
            self.connection.matmul(x, x, out=x)
        with self.assertRaises(gemmd.InvalidArgument):
            self.connection.freeze(np.ones(4))


class DeviceMemory(DaemonTest):
    def test_what_goes_up_comes_down(self) -> None:
        for dtype in ("bf16", "fp16", "fp32", "fp64", "int8", "int32"):
            source = values(self.random, (17, 9), "fp64" if dtype == "int32" else dtype)
            source = source.astype(np.int32) if dtype == "int32" else source
            device = self.connection.device_buffer((17, 9), dtype)
            self.assertFalse(np.asarray(device.download()).view(np.uint8).any())
            device.upload(source)
            np.testing.assert_array_equal(device.download().view(source.dtype), source)

    def test_large_ones_too(self) -> None:
        source = values(self.random, (2500, 3000), "fp32")
        device = self.connection.device_buffer(source.shape).upload(source)
        np.testing.assert_array_equal(device.download(np.empty_like(source)), source)

    def test_products_use_them_as_every_operand(self) -> None:
        a, b, c = (values(self.random, shape, "fp32") for shape in ((6, 8), (8, 5), (6, 5)))
        up = [self.connection.device_buffer(x.shape).upload(x) for x in (a, b, c)]
        out = self.connection.device_buffer((6, 5))
        self.assertIs(gemmd.matmul(up[0], up[1], c=up[2], beta=-1, out=out), out)
        assert_is_product(out.download(), a, b, "fp32", beta=-1, c=c)
        assert_is_product(a @ up[1], a, b, "fp32")
        assert_is_product(up[0] @ b, a, b, "fp32")

    def test_out_may_be_a_transposed_device_view(self) -> None:
        a, b = values(self.random, (6, 8), "fp32"), values(self.random, (8, 5), "fp32")
        out = self.connection.device_buffer((5, 6))
        self.connection.matmul(a, b, out=out.T)
        assert_is_product(out.T.download(), a, b, "fp32")
        assert_is_product(out.download().T, a, b, "fp32")

    def test_views_are_numpys(self) -> None:
        source = values(self.random, (4, 6, 10), "fp32")
        device = self.connection.device_buffer(source.shape).upload(source)
        views = [np.s_[1], np.s_[1:3], np.s_[::2], np.s_[2, 1:, 3:7], np.s_[-1, ::3], np.s_[None],
                 np.s_[:, 2, None, ::2], np.s_[4:2], np.s_[:, :, 9], np.s_[1, 2, 3]]
        for index in views:
            with self.subTest(index=index):
                np.testing.assert_array_equal(device[index].download(), source[index])
        np.testing.assert_array_equal(device.mT.download(), source.transpose(0, 2, 1))
        np.testing.assert_array_equal(device[0].T[2:5].download(), source[0].T[2:5])
        for index, error in ((4, IndexError), (np.s_[0, 0, 0, 0], IndexError),
                             (np.s_[::-1], gemmd.InvalidArgument)):
            with self.assertRaises(error):
                device[index]

    def test_uploads_go_to_dense_views_and_convert(self) -> None:
        device = self.connection.device_buffer((4, 6))
        device[1].upload(np.arange(6))
        device[2:4].T.upload(np.ones((6, 2)))
        np.testing.assert_array_equal(device.download(), [[0] * 6, [*range(6)], [1] * 6, [1] * 6])
        with self.assertRaises(gemmd.InvalidArgument):
            device[:, 1:3].upload(np.ones((4, 2)))
        with self.assertRaises(gemmd.InvalidArgument):
            device.upload(np.ones((6, 4)))

    def test_transfers_and_products_keep_their_order(self) -> None:
        x, y = self.connection.device_buffer((64, 64)), self.connection.device_buffer((64, 64))
        for step in range(20):
            x.upload(np.full((64, 64), step))
            self.connection.submit(x, np.eye(64, dtype="f4"), out=y)
            self.assertTrue((y.download() == step).all())

    def test_a_named_one_is_shared_and_its_name_can_be_given_up(self) -> None:
        weights = values(self.random, (8, 8), "bf16")
        mine = self.connection.device_buffer((8, 8), "bf16", name="py.weights", mode=0o640)
        mine.upload(weights)
        with self.daemon.connect() as other:
            theirs = other.open_buffer("py.weights", (8, 8), "bf16")
            np.testing.assert_array_equal(theirs.download().view(np.uint16), weights)
            assert_is_product(other.matmul(weights, theirs, dtype="bf16", out_dtype="fp32"),
                              weights, weights, "bf16", "fp32")
            with self.assertRaises(gemmd.PermissionDenied):
                theirs.upload(weights)
            with self.assertRaises(gemmd.InvalidArgument) as caught:
                other.open_buffer("py.weights", (9, 8), "bf16")
            self.assertEqual(caught.exception.argument, "shape")
            mine.free()
            with self.assertRaises(gemmd.NotFound):
                other.open_buffer("py.weights", (8, 8), "bf16")
            self.assertEqual(theirs.download().shape, (8, 8))
        self.connection.device_buffer((2, 2), name="py.weights")

    def test_a_name_outlives_its_creators_connection(self) -> None:
        for linger in (False, True):
            with self.subTest(linger=linger):
                with self.daemon.connect() as creator:
                    made = creator.device_buffer((2, 2), name="py.kept")
                    made.upload(np.ones((2, 2)))
                    array = creator.empty(4) if linger else None
                del made
                again = self.connection.open_buffer("py.kept", (2, 2), "fp32")
                self.assertTrue((again.download() == 1).all())
                del array
                while self.connection.status()["clients"] > 1:  # it has noticed the end
                    time.sleep(0.001)
                again.free()
                with self.assertRaises(gemmd.NotFound):
                    self.connection.open_buffer("py.kept")

    def test_what_is_freed_is_refused(self) -> None:
        device = self.connection.device_buffer((4, 4))
        row = device[0]
        device.free()
        device.free()
        for use in (device.download, row.download, lambda: device @ np.eye(4, dtype="f4")):
            with self.assertRaises(gemmd.InvalidArgument):
                use()

    def test_one_of_another_connection_is_refused(self) -> None:
        with self.daemon.connect() as other:
            device = other.device_buffer((4, 4))
            with self.assertRaises(gemmd.InvalidArgument) as caught:
                self.connection.matmul(np.eye(4, dtype="f4"), device)
            self.assertEqual(caught.exception.argument, "b")

    def test_numpy_does_not_look_into_it(self) -> None:
        device = self.connection.device_buffer((4, 4))
        with self.assertRaises(TypeError):
            np.asarray(device)


if __name__ == "__main__":
    unittest.main()
