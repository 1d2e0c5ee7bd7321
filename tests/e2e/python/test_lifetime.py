"""What lives how long: views keep their memory, nothing leaks."""

import gc
import os
import unittest

import numpy as np
from support import DaemonTest

import gemmd

ONE = np.eye(4, dtype=np.float32)


def resident() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def mappings() -> int:
    with open("/proc/self/maps", encoding="ascii") as file:
        return sum("memfd" in line for line in file)


# A connection makes them at its first wait that outlasts the library's spinning, sooner or later.
WAITING_DESCRIPTORS = 3


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


class Lifetime(DaemonTest):
    def buffers(self) -> int:
        return len(self.connection._session._buffers)

    def test_a_view_keeps_its_buffer_alive(self) -> None:
        x = self.connection.empty((64, 64))
        x[...] = 3
        corner = x[60:, 60:].T
        del x
        gc.collect()
        self.assertEqual(self.buffers(), 1)
        self.assertTrue((corner == 3).all())
        np.testing.assert_array_equal(self.connection.matmul(corner, ONE), corner)
        del corner
        gc.collect()
        self.assertEqual((self.buffers(), mappings()), (0, 0))

    def test_a_device_view_keeps_its_buffer_alive(self) -> None:
        row = self.connection.device_buffer((4, 4)).upload(ONE)[1]
        gc.collect()
        np.testing.assert_array_equal(row.download(), ONE[1])
        del row
        gc.collect()
        self.assertEqual(self.buffers(), 0)

    def test_a_product_under_way_keeps_its_operands(self) -> None:
        futures = []
        for i in range(20):
            x, d = self.connection.array(ONE * i), self.connection.device_buffer((4, 4))
            futures.append(self.connection.submit(x, d.upload(ONE)))
            del x, d
        gc.collect()
        for i, future in enumerate(futures):
            np.testing.assert_array_equal(future.result(), ONE * i)
        gc.collect()
        self.assertEqual(self.buffers(), 0)

    def test_arrays_outlive_their_connection_and_then_it_ends(self) -> None:
        connection = self.daemon.connect()
        kept, dropped = connection.array(ONE), connection.array(ONE)
        device = connection.device_buffer(4)
        connection.close()
        del dropped, device
        self.assertEqual(self.connection.status()["clients"], 2)
        np.testing.assert_array_equal(kept, ONE)
        kept[0, 0] = 7
        np.testing.assert_array_equal(self.connection.matmul(kept, ONE), kept)
        del kept
        gc.collect()
        self.assertEqual(mappings(), 0)
        self.assertIsNone(connection._session._handle)

    def test_ten_thousand_arrays_leave_nothing(self) -> None:
        def make(count: int) -> None:
            for i in range(count):
                x = self.connection.empty((8, 8))
                x[0, 0] = i

        make(200)
        gc.collect()
        before = resident(), descriptors()
        make(10000)
        gc.collect()
        self.assertEqual((self.buffers(), mappings()), (0, 0))
        self.assertEqual(descriptors(), before[1])
        self.assertLess(resident() - before[0], 8 << 20)

    def test_ten_thousand_products_and_connections_leave_nothing(self) -> None:
        def make(count: int) -> None:
            for i in range(count):
                self.connection.submit(ONE, ONE, alpha=i).result()
            for _ in range(count // 50):
                with self.daemon.connect() as connection:
                    connection.device_buffer(16)
                    connection.submit(ONE, ONE)

        make(1000)
        gc.collect()
        before = resident(), descriptors()
        make(10000)
        gc.collect()
        self.assertLessEqual(descriptors(), before[1] + WAITING_DESCRIPTORS)
        self.assertLess(resident() - before[0], 8 << 20)

    def test_arrays_may_die_in_a_cycle_and_inside_calls(self) -> None:
        gc.set_threshold(1)
        self.addCleanup(gc.set_threshold, 700)
        for i in range(200):
            cycle = [self.connection.array(ONE * i)]
            cycle.append(cycle)
            np.testing.assert_array_equal(self.connection.matmul(cycle[0], ONE), ONE * i)
        del cycle
        gc.collect()
        self.connection.info()
        self.assertEqual(self.buffers(), 0)


if __name__ == "__main__":
    unittest.main()
