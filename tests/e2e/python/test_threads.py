"""One connection, many threads; and a forked child."""

import contextlib
import faulthandler
import os
import signal
import threading
import time
import unittest

import numpy as np
from support import MALLOC_SURVIVES_FORK, DaemonTest, assert_is_product, values

import gemmd

ONE = np.eye(4, dtype=np.float32)


def run_all(*functions) -> list:
    """Each in a thread of its own; what they raised."""
    raised = []

    def guarded(function) -> None:
        try:
            function()
        except BaseException as error:  # noqa: BLE001
            raised.append(error)

    threads = [threading.Thread(target=guarded, args=(function,)) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive(), "a thread hangs"
    return raised


class Threads(DaemonTest):
    def hammer(self, seed: int):
        def work() -> None:
            random = np.random.default_rng(seed)
            for turn in range(60):
                m, n, k = random.integers(1, 60, 3)
                a, b = values(random, (m, k), "fp32"), values(random, (k, n), "fp32")
                kind = turn % 5
                if kind == 0:
                    assert_is_product(self.connection.matmul(a, b), a, b, "fp32")
                elif kind == 1:
                    futures = [self.connection.submit(a, b) for _ in range(8)]
                    for i in random.permutation(8):
                        assert_is_product(futures[i].result(60), a, b, "fp32")
                elif kind == 2:
                    x = self.connection.array(a)
                    assert_is_product(self.connection.matmul(x, b), a, b, "fp32")
                elif kind == 3:
                    device = self.connection.device_buffer(b.shape).upload(b)
                    assert_is_product(a @ device, a, b, "fp32")
                else:
                    future = self.connection.submit(a, b)
                    while not future.done():
                        time.sleep(0)
                    assert_is_product(future.result(), a, b, "fp32")
        return work

    def test_threads_hammer_one_connection(self) -> None:
        self.assertEqual(run_all(*(self.hammer(i) for i in range(12))), [])

    def test_one_future_is_waited_for_by_many(self) -> None:
        large = np.ones((1000, 1000))
        future = self.connection.submit(large, large)
        results = []
        raised = run_all(*[lambda: results.append(future.result(60))] * 8)
        self.assertEqual(raised, [])
        self.assertTrue(len(results) == 8 and all(result is results[0] for result in results))

    def test_waiting_holds_nobody_up(self) -> None:
        """While one thread waits for a product, others get their answers."""
        with self.daemon.held():
            future = self.connection.submit(ONE, ONE)
            waiter = threading.Thread(target=future.result)
            waiter.start()
            for _ in range(10):  # not a product: those take effect in order
                self.connection.stats()
            self.assertTrue(waiter.is_alive())
        waiter.join()

    def test_closing_wakes_those_that_wait(self) -> None:
        with self.daemon.held():
            futures = [self.connection.submit(ONE, ONE) for _ in range(4)]
            closer = threading.Timer(0.02, lambda: self.connection.close(wait=False))
            closer.start()
            raised = run_all(*(one.result for one in futures))
            closer.join()
        self.assertEqual([type(error) for error in raised], [gemmd.Disconnected] * 4, raised)
        self.assertTrue(all(one.done() for one in futures))

    def test_who_waits_is_told_when_another_takes_the_answer_in(self) -> None:
        a = np.ones((200, 200))
        for _ in range(100):
            future = self.connection.submit(a, a)
            waiting = threading.Thread(target=future.result, daemon=True)
            waiting.start()
            while not future.done():
                pass
            waiting.join(20)
            self.assertFalse(waiting.is_alive())

    def test_followers_with_timeouts_do_not_lose_the_lead(self) -> None:
        timeouts = threading.Semaphore(0)

        def impatient() -> None:
            while True:
                try:
                    future.result(0.002)
                    return
                except gemmd.Timeout:
                    timeouts.release()

        def release() -> None:
            for _ in range(20):
                timeouts.acquire()
            held.close()

        with contextlib.ExitStack() as held:
            held.enter_context(self.daemon.held())
            future = self.connection.submit(ONE, ONE)
            raised = run_all(release, *[impatient] * 4, *[future.result] * 4)
        self.assertEqual(raised, [])


class Fork(DaemonTest):
    def in_child(self, function) -> None:
        """Fails unless the child returns from `function` within 20 s; a late one says where it is."""
        child = os.fork()
        if child == 0:
            status = 1
            try:
                faulthandler.register(signal.SIGALRM, chain=True)
                signal.alarm(20)
                function()
                status = 0
            except BaseException as error:  # noqa: BLE001
                os.write(2, f"in the child: {error!r}\n".encode())
            finally:
                os._exit(status)
        self.assertEqual(os.waitpid(child, 0)[1], 0)

    def refuse_all(self, future, device, shared) -> None:
        for use in (lambda: self.connection.matmul(ONE, ONE), lambda: self.connection.empty(4),
                    self.connection.info, future.result, device.download,
                    lambda: self.connection.submit(shared, ONE)):
            try:
                use()
            except gemmd.Forked:
                continue
            raise AssertionError("a call went through in the child")

    def test_a_child_is_told_and_the_parent_lives_on(self) -> None:
        shared, device = self.connection.array(ONE), self.connection.device_buffer((4, 4))
        future = self.connection.submit(ONE, ONE, alpha=2)

        def child() -> None:
            self.refuse_all(future, device, shared)
            assert (shared == ONE).all()
            with self.daemon.connect() as own:
                assert (own.matmul(shared, ONE) == ONE).all()
            self.connection.close()
            assert not self.connection.is_open

        self.in_child(child)
        np.testing.assert_array_equal(future.result(), ONE * 2)
        np.testing.assert_array_equal(self.connection.matmul(shared, ONE), ONE)
        self.assertEqual(device.upload(ONE).download()[1, 1], 1)

    def test_a_child_connects_anew_by_default(self) -> None:
        os.environ["GEMMD_SOCKET"] = self.daemon.socket
        self.addCleanup(os.environ.pop, "GEMMD_SOCKET")
        first = gemmd.default_connection()

        def child() -> None:
            assert (gemmd.matmul(ONE, ONE) == ONE).all()
            assert gemmd.default_connection() is not first

        self.in_child(child)
        np.testing.assert_array_equal(gemmd.matmul(ONE, ONE), ONE)
        self.assertIs(gemmd.default_connection(), first)
        first.close()

    def test_a_fork_while_the_connection_is_in_use(self) -> None:
        shared = self.connection.array(ONE)

        def child() -> None:
            with self.assertRaises(gemmd.Forked):
                self.connection.freeze(shared)

        with self.connection._session._lock:
            self.in_child(child)

    @unittest.skipUnless(MALLOC_SURVIVES_FORK, "a lock of this sanitizer's allocator may stay held")
    def test_a_fork_beside_threads_inside_the_library(self) -> None:
        stop = threading.Event()

        def work() -> None:
            while not stop.is_set():
                self.connection.matmul(ONE, ONE)
                self.connection.empty(10)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        self.addCleanup(lambda: (stop.set(), [thread.join() for thread in threads]))
        shared, device = self.connection.empty(4), self.connection.device_buffer(4)
        future = self.connection.submit(ONE, ONE)
        future.result()

        def child() -> None:
            nonlocal shared, device
            try:
                self.connection.matmul(ONE, ONE)
                raise AssertionError("a call went through in the child")
            except gemmd.Forked:
                pass
            del shared, device
            self.connection.close()
            with self.daemon.connect() as own:
                assert (own.matmul(ONE, ONE) == ONE).all()

        for _ in range(10):
            self.in_child(child)


if __name__ == "__main__":
    unittest.main()
