"""Views of every kind: right results, and no copy where none is needed."""

import itertools
import unittest

import numpy as np
from support import DaemonTest, assert_is_product, values

import gemmd
from gemmd import _product
from gemmd._layout import layout_of

# From a dense (rows, columns) array with room, to a view of (6, 10).
VIEWS = {
    "dense": lambda make: make((6, 10)),
    "transposed": lambda make: make((10, 6)).T,
    "fortran": lambda make: np.asfortranarray(make((6, 10))),
    "rows_apart": lambda make: make((12, 10))[::2],
    "columns_apart": lambda make: make((6, 20))[:, ::2],
    "window": lambda make: make((9, 15))[2:8, 3:13],
    "transposed_window": lambda make: make((15, 9))[3:13, 2:8].T,
    "reversed_rows": lambda make: make((6, 10))[::-1],
    "reversed_columns": lambda make: make((6, 10))[:, ::-1],
    "repeated_row": lambda make: np.broadcast_to(make((1, 10)), (6, 10)),
    "repeated_column": lambda make: np.broadcast_to(make((6, 1)), (6, 10)),
}
COPIED = {"columns_apart", "reversed_rows", "reversed_columns", "repeated_row", "repeated_column"}


class Layouts(DaemonTest):
    def make(self, shape: tuple) -> np.ndarray:
        return values(self.random, shape, "fp32")

    def shared(self, shape: tuple) -> np.ndarray:
        return self.connection.array(self.make(shape))

    def test_inputs_may_be_any_view(self) -> None:
        for make, (left, a_of), (right, b_of) in itertools.product(
                (self.make, self.shared), VIEWS.items(), VIEWS.items()):
            with self.subTest(memory=make.__name__, a=left, b=right):
                a, b = a_of(make), b_of(make).T
                assert_is_product(self.connection.matmul(a, b), a, b, "fp32")

    def test_out_may_be_any_view_and_nothing_else_is_written(self) -> None:
        a, b = self.make((6, 8)), self.make((8, 10))
        for make, (name, view_of) in itertools.product((self.make, self.shared), VIEWS.items()):
            if name.startswith("repeated"):
                continue
            with self.subTest(memory=make.__name__, out=name):
                base = []
                out = view_of(lambda shape: base.append(make(shape)) or base[0])
                before = base[0].copy()
                mark = np.zeros(base[0].shape, bool)
                mark_view = view_of(lambda shape: mark)
                self.assertIs(self.connection.matmul(a, b, out=out), out)
                assert_is_product(out, a, b, "fp32")
                if np.shares_memory(mark_view, mark):  # fortran: a copy, has no surroundings
                    mark_view[...] = True
                    np.testing.assert_array_equal(base[0][~mark], before[~mark])

    def test_c_may_be_any_view_whatever_out_is(self) -> None:
        a, b = self.make((6, 8)), self.make((8, 10))
        for (left, c_of), (right, out_of) in itertools.product(VIEWS.items(), VIEWS.items()):
            if right.startswith("repeated"):
                continue
            with self.subTest(c=left, out=right):
                c, out = c_of(self.make), out_of(self.make)
                self.connection.matmul(a, b, c=c, beta=-1, out=out)
                assert_is_product(out, a, b, "fp32", beta=-1, c=c)

    def test_batches_of_any_view(self) -> None:
        shapes = {
            "dense": lambda: self.make((4, 6, 10)),
            "every_other": lambda: self.make((8, 6, 10))[::2],
            "heads": lambda: self.make((6, 4, 10)).transpose(1, 0, 2),
            "transposed": lambda: self.make((4, 10, 6)).transpose(0, 2, 1),
            "fortran": lambda: np.asfortranarray(self.make((4, 6, 10))),
            "reversed": lambda: self.make((4, 6, 10))[::-1],
            "repeated": lambda: np.broadcast_to(self.make((6, 10)), (4, 6, 10)),
            "repeated_and_apart": lambda: np.broadcast_to(self.make((6, 20))[:, ::2], (4, 6, 10)),
            "one": lambda: self.make((1, 6, 10)),
            "windows": lambda: np.lib.stride_tricks.sliding_window_view(
                self.make((4 * 3 + 60,)), 60)[:10:3].reshape(4, 6, 10),
        }
        for (left, a_of), (right, b_of) in itertools.product(shapes.items(), shapes.items()):
            with self.subTest(a=left, b=right):
                a, b = a_of(), b_of().transpose(0, 2, 1)
                assert_is_product(self.connection.matmul(a, b), a, b, "fp32")
        for name in set(shapes) - {"repeated", "repeated_and_apart", "one", "windows"}:
            with self.subTest(out=name):
                a, b, out = self.make((4, 6, 8)), self.make((1, 8, 10)), shapes[name]()
                self.connection.matmul(a, b, out=out)
                assert_is_product(out, a, b, "fp32")

    def test_only_awkward_layouts_are_copied(self) -> None:
        copied = []
        original = _product.Operand.copy

        def spy(operand, *arguments) -> None:
            copied.append(operand.argument)
            original(operand, *arguments)

        _product.Operand.copy = spy
        self.addCleanup(setattr, _product.Operand, "copy", original)
        for name, view_of in VIEWS.items():
            with self.subTest(a=name):
                copied.clear()
                self.connection.matmul(view_of(self.make), self.make((10, 3)))
                self.assertEqual(copied, ["a"] if name in COPIED else [])

    def test_elements_off_their_alignment_and_of_the_other_byte_order(self) -> None:
        raw = np.zeros(6 * 10 * 4 + 1, np.uint8)
        crooked = raw[1:].view(np.float32).reshape(6, 10)
        crooked[...] = self.make((6, 10))
        swapped = self.make((10, 6)).astype(">f4")
        assert_is_product(self.connection.matmul(crooked, swapped), crooked, swapped, "fp32")
        self.connection.matmul(np.eye(6), np.ones((6, 10)), out=crooked, dtype="fp32")
        self.assertTrue((crooked == 1).all())

    def test_out_that_is_an_input_is_as_in_numpy(self) -> None:
        for make in (self.make, self.shared):
            x = make((12, 12))
            for a, b, out in ((x, x, x), (x[:6], x, x[6:]), (x[1:7, :6], x[:6], x[:6]),
                              (x[:6, :6], x[6:, :6], x[:6, 6:]), (x[:, :6], x[:6], x.T)):
                with self.subTest(memory=make.__name__):
                    x[...] = self.make((12, 12))
                    expected_a, expected_b = a.copy(), b.copy()
                    self.connection.matmul(a, b, out=out)
                    assert_is_product(out, expected_a, expected_b, "fp32")

    def test_c_may_overlap_out(self) -> None:
        for make in (self.make, self.shared):
            x = make((7, 6))
            a, b = self.make((6, 4)), self.make((4, 6))
            for c, out in ((x[:6], x[:6]), (x[:6], x[1:]), (x[:6].T, x[:6])):
                with self.subTest(memory=make.__name__):
                    x[...] = self.make((7, 6))
                    before = c.copy()
                    self.connection.matmul(a, b, c=c, beta=1, out=out)
                    assert_is_product(out, a, b, "fp32", beta=1, c=before)


class Arithmetic(unittest.TestCase):
    """layout_of() against what numpy says lies at each place."""

    def test_it_says_where_every_element_lies(self) -> None:
        base = np.arange(4 * 6 * 8).reshape(4, 6, 8)
        views = [base, base[::2], base[:, 1:4, 2:5], base.transpose(0, 2, 1), base[:, :1],
                 base[:, :, :1], base[1:2], base[:, ::3], base.transpose(1, 0, 2),
                 base[:, :, ::2], base[::-1], np.broadcast_to(base[:1], (5, 6, 8)), base[:, :0]]
        for view in views:
            layout = layout_of(view.shape, view.strides, view.itemsize)
            if layout is None:
                continue
            first = view.flat[0] if view.size else 0
            for (batch, row, column), value in np.ndenumerate(view):
                major, minor = (column, row) if layout.transposed else (row, column)
                self.assertEqual(
                    first + batch * layout.stride + major * layout.ld + minor, value)

    def test_leading_dimensions_are_never_too_short(self) -> None:
        for shape in itertools.product((0, 1, 3), repeat=3):
            view = np.empty(shape, np.float32)
            for turned in (view, view.transpose(0, 2, 1)):
                layout = layout_of(turned.shape, turned.strides, 4)
                row = turned.shape[1] if layout.transposed else turned.shape[2]
                self.assertGreaterEqual(layout.ld, max(1, row))


if __name__ == "__main__":
    unittest.main()
