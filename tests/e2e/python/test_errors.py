"""What goes wrong, and how it is said."""

import os
import pickle
import subprocess
import sys
import unittest

import numpy as np
from support import Daemon, DaemonTest

import gemmd

ONE = np.eye(4, dtype=np.float32)


class Arguments(DaemonTest):
    def refuse(self, argument: str, kind=gemmd.InvalidArgument, **arguments) -> None:
        given = {"a": ONE, "b": ONE} | arguments
        with self.subTest(argument=argument), self.assertRaises(kind) as caught:
            self.connection.matmul(given.pop("a"), given.pop("b"), **given)
        self.assertEqual(caught.exception.argument, argument)
        self.assertEqual(caught.exception.status, kind.status)
        self.assertTrue(caught.exception.message)
        # The connection is none the worse for it.
        np.testing.assert_array_equal(self.connection.matmul(ONE, ONE), ONE)

    def test_a_deadline_and_a_priority_that_cannot_be_are_refused(self) -> None:
        a = np.ones((4, 4), np.float32)
        self.connection.matmul(a, a, deadline=60, priority=-1)
        for arguments in ({"deadline": -1}, {"deadline": float("nan")}, {"priority": 2},
                          {"priority": 2**32}, {"priority": 0.5}):
            with self.subTest(arguments):
                with self.assertRaises(gemmd.InvalidArgument) as caught:
                    self.connection.matmul(a, a, **arguments)
                self.assertEqual(caught.exception.argument, next(iter(arguments)))

    def test_what_has_not_started_by_its_deadline_is_not_run(self) -> None:
        a = np.ones((4, 4), np.float32)
        out = np.zeros((4, 4), np.float32)
        with self.assertRaises(gemmd.DeadlinePassed) as caught:
            for _ in range(1000):  # the daemon may be that quick
                self.connection.matmul(a, a, out=out, deadline=0)
        self.assertEqual(caught.exception.argument, "deadline")

    def test_each_fault_names_its_argument(self) -> None:
        three = np.ones((3, 3), np.float32)
        read_only = ONE.copy()
        read_only.flags.writeable = False
        self.refuse("b", b=three)
        self.refuse("b", a=np.ones((2, 3, 4)), b=np.ones((3, 4, 5)))
        self.refuse("a", a=np.float32(3))
        self.refuse("b", b=np.ones((1, 1, 4, 4)))
        self.refuse("a", a="text")
        self.refuse("a", a=[object()])
        self.refuse("a", a=ONE.astype(np.int64))
        self.refuse("b", b=ONE.astype(np.uint16))
        self.refuse("a", a=ONE.astype(complex))
        self.refuse("out", out=three)
        self.refuse("out", out=ONE.astype(np.float64))
        self.refuse("out", out=read_only)
        self.refuse("out", out=[[1]])
        self.refuse("c", c=three, beta=1)
        self.refuse("c", beta=1)
        self.refuse("alpha", alpha="much")
        self.refuse("beta", beta=1j)
        self.refuse("dtype", dtype="fp12")
        self.refuse("dtype", dtype="int32")
        self.refuse("out_dtype", out_dtype="?")
        self.refuse("out_dtype", kind=gemmd.Unsupported, out_dtype="fp64")
        self.refuse("alpha", a=ONE.astype(np.int8), b=ONE.astype(np.int8), alpha=0.5)

    def test_buffers_too(self) -> None:
        for argument, kind, make in (
                ("size", gemmd.InvalidArgument, lambda: self.connection.device_buffer(0)),
                ("shape", gemmd.InvalidArgument, lambda: self.connection.empty((-1, 2))),
                ("shape", gemmd.InvalidArgument, lambda: self.connection.empty("wide")),
                ("shape", gemmd.InvalidArgument, lambda: self.connection.empty(2**62)),
                ("shape", gemmd.InvalidArgument,
                 lambda: self.connection.device_buffer((2**31, 2**31 + 1))),
                ("mode", gemmd.InvalidArgument,
                 lambda: self.connection.device_buffer(2, mode=2**32 + 0o600)),
                ("mode", gemmd.InvalidArgument,
                 lambda: self.connection.device_buffer(2, mode="rw")),
                ("dtype", gemmd.InvalidArgument, lambda: self.connection.empty(2, "fp12")),
                ("dtype", gemmd.InvalidArgument, lambda: self.connection.empty(2, "S0")),
                ("dtype", gemmd.InvalidArgument,
                 lambda: self.connection.open_buffer("nobody's", dtype="S")),
                ("name", gemmd.InvalidArgument,
                 lambda: self.connection.device_buffer(2, name="a/b")),
                ("name", gemmd.InvalidArgument,
                 lambda: self.connection.device_buffer(2, name="a\0b")),
                ("name", gemmd.NotFound, lambda: self.connection.open_buffer("nobody's"))):
            with self.subTest(argument=argument, kind=kind), self.assertRaises(kind) as caught:
                make()
            self.assertEqual(caught.exception.argument, argument)
        kept = self.connection.device_buffer(4, name="py.taken")
        with self.assertRaises(gemmd.Exists):
            self.connection.device_buffer(4, name="py.taken")
        del kept

    def test_bf16_is_not_read_out_of_other_types(self) -> None:
        for array in (ONE, ONE.astype(np.float16), np.ones(4, np.uint8), ONE.astype(">u2")):
            with self.subTest(array.dtype), self.assertRaises(gemmd.InvalidArgument):
                gemmd.from_bf16(array)

    def test_tuning_too(self) -> None:
        for keep in (33, 2**32, -1):
            with self.subTest(keep), self.assertRaises(gemmd.InvalidArgument) as caught:
                self.connection.tune(ONE, ONE, keep=keep)
            self.assertEqual(caught.exception.argument, "keep")

    def test_errors_are_pythons_own_too_and_can_be_pickled(self) -> None:
        for kind, base in ((gemmd.InvalidArgument, ValueError), (gemmd.Timeout, TimeoutError),
                           (gemmd.Disconnected, ConnectionError), (gemmd.OutOfMemory, MemoryError),
                           (gemmd.PermissionDenied, PermissionError), (gemmd.NotFound, LookupError),
                           (gemmd.Unsupported, NotImplementedError)):
            error = kind("it is so", "a.ld")
            self.assertIsInstance(error, base)
            self.assertEqual(str(error), "a.ld: it is so")
            again = pickle.loads(pickle.dumps(error))
            self.assertEqual((type(again), again.argument, again.message),
                             (kind, "a.ld", "it is so"))

    def test_every_status_has_its_exception(self) -> None:
        from gemmd._errors import error_of

        for status in gemmd.Status:
            if status is not gemmd.Status.OK:
                self.assertEqual(error_of(status, "m", "").status, status)
        self.assertIs(type(error_of(999, "m", "")), gemmd.InternalError)


class Connections(unittest.TestCase):
    def setUp(self) -> None:
        self.daemon = Daemon()
        self.addCleanup(lambda: self.daemon.process.poll() is None and self.daemon.stop())

    def test_no_daemon_is_disconnected(self) -> None:
        for path in ("/nonexistent/socket", os.fsdecode(b"/nonexistent/\xff")):
            with self.assertRaises(gemmd.Disconnected) as caught:
                gemmd.connect(path)
            self.assertEqual(caught.exception.argument, "socket")

    def test_a_path_does_not_end_at_a_null_character(self) -> None:
        with self.assertRaises(gemmd.InvalidArgument) as caught:
            gemmd.connect(self.daemon.socket + "\0.old")
        self.assertEqual(caught.exception.argument, "socket")

    def test_closing_waits_for_what_is_under_way(self) -> None:
        with self.daemon.connect() as connection:
            futures = [connection.submit(ONE, ONE) for _ in range(50)]
        self.assertTrue(all((future.result(0) == ONE).all() for future in futures))
        self.assertFalse(connection.is_open)
        connection.close()
        for use in (lambda: connection.matmul(ONE, ONE), lambda: connection.empty(3),
                    connection.info, connection.status):
            with self.assertRaises(gemmd.Disconnected):
                use()

    def test_closing_without_waiting_fails_what_is_under_way(self) -> None:
        connection = self.daemon.connect()
        device = connection.device_buffer(4)
        with self.daemon.held():
            future = connection.submit(ONE, ONE)
            connection.close(wait=False)
        with self.assertRaises(gemmd.Disconnected):
            future.result()
        with self.assertRaises(gemmd.Disconnected):
            device.download()

    def test_a_daemon_that_dies_disconnects_and_the_next_one_serves(self) -> None:
        os.environ["GEMMD_SOCKET"] = self.daemon.socket
        self.addCleanup(os.environ.pop, "GEMMD_SOCKET")
        first = gemmd.default_connection()
        shared = first.array(ONE)
        with self.daemon.held():
            pending = [gemmd.submit(ONE, ONE) for _ in range(3)]
            self.daemon.kill()
        for future in pending:
            with self.assertRaises(gemmd.Disconnected):
                future.result()
        with self.assertRaises(gemmd.Disconnected):
            first.matmul(shared, ONE)
        np.testing.assert_array_equal(shared, ONE)  # what was mapped stays
        self.daemon.start()
        np.testing.assert_array_equal(gemmd.matmul(shared, ONE), ONE)
        self.assertIsNot(gemmd.default_connection(), first)
        gemmd.default_connection().close()

    def test_a_daemon_that_stops_in_order_answers_first(self) -> None:
        with self.daemon.connect() as connection:
            future = connection.submit(ONE, ONE)
            self.daemon.stop()
            np.testing.assert_array_equal(future.result(), ONE)


class Package(unittest.TestCase):
    def run_python(self, program: str, **environment: str) -> str:
        variables = {**os.environ, **environment}
        return subprocess.run([sys.executable, "-c", program], env=variables, check=True,
                              capture_output=True, text=True).stdout

    def test_its_version_is_the_projects(self) -> None:
        self.assertEqual(gemmd.__version__, os.environ["GEMMD_VERSION"])

    def test_importing_needs_no_library_and_no_torch(self) -> None:
        program = ("import gemmd, sys\n"
                   "guests = ('torch', 'cupy', 'ml_dtypes', 'asyncio')\n"
                   "print([name for name in guests if name in sys.modules])\n"
                   "try:\n gemmd.connect()\n"
                   "except OSError as e:\n print('GEMMD_LIBRARY' in str(e))")
        self.assertEqual(self.run_python(program, GEMMD_LIBRARY="/nonexistent.so"), "[]\nTrue\n")

    def test_everything_public_is_there(self) -> None:
        for name in gemmd.__all__:
            self.assertTrue(hasattr(gemmd, name), name)


if __name__ == "__main__":
    unittest.main()
