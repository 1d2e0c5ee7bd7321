"""Futures: any order, timeouts, callbacks, await."""

import asyncio
import threading
import time
import unittest
import unittest.mock

import numpy as np
from support import DaemonTest, values

import gemmd

ONE = np.eye(4, dtype=np.float32)


class Futures(DaemonTest):
    def test_results_may_be_taken_in_any_order(self) -> None:
        futures = [self.connection.submit(ONE, ONE, alpha=i) for i in range(100)]
        for i in self.random.permutation(100):
            np.testing.assert_array_equal(futures[i].result(), ONE * i)
            self.assertIs(futures[i].result(), futures[i].result())

    def test_more_than_may_be_under_way_wait_their_turn(self) -> None:
        count = 3 * self.connection.info().in_flight_max
        futures = [self.connection.submit(ONE, ONE, alpha=i) for i in range(count)]
        for i, future in enumerate(futures):
            np.testing.assert_array_equal(future.result(), ONE * i)

    def test_many_are_submitted_with_few_messages(self) -> None:
        count = 3 * self.connection.info().in_flight_max + 1
        session = self.connection._session
        with unittest.mock.patch.object(session, "_send", wraps=session._send) as send:
            futures = self.connection.submit_many({"a": ONE, "b": ONE, "alpha": i}
                                                  for i in range(count))
        messages = [call.args[0] for call in send.call_args_list]
        self.assertTrue(all(len(rest) % 32 == count % 32 for rest in messages), "all are full")
        self.assertEqual(len(futures), count)
        for i, future in enumerate(futures):
            np.testing.assert_array_equal(future.result(), ONE * i)
        self.assertEqual(self.connection.submit_many([]), [])

    def test_many_take_effect_in_their_order(self) -> None:
        x, y = (self.connection.array(np.zeros_like(ONE)) for _ in range(2))
        self.connection.submit_many([{"a": ONE, "b": ONE, "out": y, "alpha": 3},
                                     {"a": y, "b": ONE, "out": x, "alpha": 2}])[1].result()
        np.testing.assert_array_equal(x, ONE * 6)

    def test_many_wait_for_room_between_older_ones(self) -> None:
        """Each has a number of 1024, many have numbers in a row."""
        older = []
        for _ in range(40):
            older.append(self.connection.submit(ONE, ONE))
            for _ in range(31):
                self.connection.stats()
        for i, future in enumerate(self.connection.submit_many(
                {"a": ONE, "b": ONE, "alpha": i} for i in range(32))):
            np.testing.assert_array_equal(future.result(), ONE * i)
        for future in older:
            np.testing.assert_array_equal(future.result(), ONE)

    def test_one_refused_of_many_starts_none_of_them(self) -> None:
        out = self.connection.array(np.zeros_like(ONE))
        with self.assertRaises(gemmd.InvalidArgument):
            self.connection.submit_many([{"a": ONE, "b": ONE, "out": out}, {"a": ONE, "b": np.eye(3)}])
        with self.assertRaises(TypeError):
            self.connection.submit_many([{"a": ONE, "b": ONE, "gamma": 1}])
        self.connection.matmul(ONE, ONE)
        np.testing.assert_array_equal(out, np.zeros_like(ONE))

    def test_dropped_futures_still_write_and_leave_room(self) -> None:
        outs = [np.empty_like(ONE) for _ in range(1000)]
        for i, out in enumerate(outs):
            self.connection.submit(ONE, ONE, alpha=i, out=out)
        self.connection.close()
        self.assertTrue(all((out == ONE * i).all() for i, out in enumerate(outs)))

    def test_a_timeout_leaves_it_under_way(self) -> None:
        with self.daemon.held():
            future = self.connection.submit(ONE, ONE)
            with self.assertRaises(gemmd.Timeout):
                future.result(0.001)
            with self.assertRaises(TimeoutError):
                future.result(0)
        np.testing.assert_array_equal(future.result(60), ONE)

    def test_a_timeout_that_is_no_number_is_refused(self) -> None:
        with self.daemon.held():
            future = self.connection.submit(ONE, ONE)
            with self.assertRaises(gemmd.InvalidArgument) as caught:
                future.result(float("nan"))
        self.assertEqual(caught.exception.argument, "timeout")
        np.testing.assert_array_equal(future.result(), ONE)

    def test_done_becomes_true_without_anybody_waiting(self) -> None:
        with self.daemon.held():
            future = self.connection.submit(ONE, ONE)
            self.assertFalse(future.done())
            self.assertIsNone(future.info)
        deadline = time.monotonic() + 60
        while not future.done() and time.monotonic() < deadline:
            time.sleep(0.001)
        self.assertTrue(future.done())
        self.assertGreater(future.info.device_seconds, 0)

    def test_inputs_may_change_once_it_is_submitted(self) -> None:
        a = np.ones((300, 300), np.float32)
        future = self.connection.submit(a, a)
        a[...] = 7
        self.assertTrue((future.result() == 300).all())

    def test_callbacks_are_called_once_with_the_future(self) -> None:
        called = []
        future = self.connection.submit(ONE, ONE)
        future.add_done_callback(called.append)
        future.result()
        future.add_done_callback(called.append)
        self.assertEqual(called, [future, future])

    def test_a_callback_may_use_the_connection_and_may_fail(self) -> None:
        called = []
        future = self.connection.submit(ONE, ONE)
        future.add_done_callback(lambda _: called.append(self.connection.matmul(ONE, ONE)))
        future.add_done_callback(lambda _: 1 / 0)
        with self.assertLogs("gemmd", "ERROR"):
            future.result()
        np.testing.assert_array_equal(called[0], ONE)

    def test_a_result_is_written_through_a_copy_where_it_must(self) -> None:
        out = np.zeros((4, 8), np.float32)[:, ::2]
        future = self.connection.submit(ONE, ONE, out=out)
        self.assertIs(future.result(), out)
        np.testing.assert_array_equal(out, ONE)


class Await(DaemonTest):
    def test_it_gives_the_result(self) -> None:
        async def run() -> np.ndarray:
            return await self.connection.submit(ONE, ONE)

        np.testing.assert_array_equal(asyncio.run(run()), ONE)

    def test_many_tasks_wait_side_by_side(self) -> None:
        async def one(i: int) -> bool:
            a = values(np.random.default_rng(i), (20, 20), "fp64")
            d = await self.connection.submit(a, a)
            return np.allclose(d, a @ a)

        async def run() -> list:
            return await asyncio.gather(*(one(i) for i in range(600)))

        self.assertTrue(all(asyncio.run(run())))

    def test_the_loop_runs_on_meanwhile(self) -> None:
        async def run() -> None:
            with self.daemon.held():
                task = asyncio.ensure_future(self._take(self.connection.submit(ONE, ONE)))
                for _ in range(5):
                    await asyncio.sleep(0.001)
                    self.assertFalse(task.done())
            await task

        asyncio.run(run())

    @staticmethod
    async def _take(future: gemmd.Future) -> np.ndarray:
        return await future

    def test_errors_arrive(self) -> None:
        async def run() -> None:
            connection = self.daemon.connect()
            with self.daemon.held():
                waiting = asyncio.ensure_future(self._take(connection.submit(ONE, ONE)))
                await asyncio.sleep(0.01)
                connection.close(wait=False)
                await waiting

        with self.assertRaises(gemmd.Disconnected):
            asyncio.run(run())

    def test_a_connection_made_when_another_is_closed_is_watched(self) -> None:
        """Their descriptors may have one number."""
        async def run() -> np.ndarray:
            first = self.daemon.connect()
            with self.daemon.held():
                waiting = asyncio.ensure_future(self._take(first.submit(ONE, ONE)))
                await asyncio.sleep(0.01)
                first.close(wait=False)
                second = self.daemon.connect()
                self.addCleanup(second.close)
                taken = asyncio.ensure_future(self._take(second.submit(ONE, ONE)))
                await asyncio.sleep(0.01)
            value = await asyncio.wait_for(taken, 60)
            with self.assertRaises(gemmd.Disconnected):
                await waiting
            self.assertIsNone(first._session._handle)
            return value

        np.testing.assert_array_equal(asyncio.run(run()), ONE)

    def test_cancelling_a_task_leaves_the_product_alone(self) -> None:
        async def run() -> np.ndarray:
            with self.daemon.held():
                future = self.connection.submit(ONE, ONE)
                with self.assertRaises(asyncio.TimeoutError):
                    await asyncio.wait_for(self._take(future), 0.005)
            return await future

        np.testing.assert_array_equal(asyncio.run(run()), ONE)

    def test_loops_and_threads_share_a_connection(self) -> None:
        async def run() -> list:
            return [await self.connection.submit(ONE, ONE, alpha=i) for i in range(100)]

        outcome = []
        threads = [threading.Thread(target=lambda: outcome.append(asyncio.run(run())))
                   for _ in range(2)]
        for thread in threads:
            thread.start()
        for i in range(200):
            np.testing.assert_array_equal(self.connection.matmul(ONE, ONE, alpha=i), ONE * i)
        for thread in threads:
            thread.join()
        for results in outcome:
            self.assertTrue(all((d == ONE * i).all() for i, d in enumerate(results)))
        self.assertEqual(len(outcome), 2)

    def test_nothing_is_left_in_the_loop(self) -> None:
        async def run() -> None:
            with self.daemon.held():
                task = asyncio.ensure_future(self._take(self.connection.submit(ONE, ONE)))
                await asyncio.sleep(0.01)
                self.assertNotEqual(self.connection._session._readers, {})
            await task
            self.assertEqual(self.connection._session._readers, {})

        asyncio.run(run())


if __name__ == "__main__":
    unittest.main()
