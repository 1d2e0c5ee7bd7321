"""Every type, shape and rule of matmul() against float64."""

import itertools
import unittest

import numpy as np
from support import INPUTS, PAIRS, DaemonTest, assert_is_product, default_output, values

import gemmd

SHAPES = [(1, 1, 1), (3, 5, 7), (16, 16, 16), (33, 65, 1), (1, 64, 20), (70, 1, 63), (128, 96, 257)]


class Products(DaemonTest):
    def test_every_type_and_shape_is_within_the_bound(self) -> None:
        for (dtype, out), (m, n, k) in itertools.product(PAIRS, SHAPES):
            with self.subTest(dtype=dtype, out=out, m=m, n=n, k=k):
                a = values(self.random, (m, k), dtype)
                b = values(self.random, (k, n), dtype)
                d = self.connection.matmul(a, b, dtype=dtype, out_dtype=out)
                assert_is_product(d, a, b, dtype, out)

    def test_large_operands_travel_too(self) -> None:
        a = values(self.random, (700, 400), "fp32")
        b = values(self.random, (400, 900), "fp32")
        assert_is_product(self.connection.matmul(a, b), a, b, "fp32")

    def test_alpha_beta_and_c_obey_blas(self) -> None:
        for dtype, (alpha, beta) in itertools.product(INPUTS, [(2, 0), (0, 3), (-1, 1), (3, -2)]):
            with self.subTest(dtype=dtype, alpha=alpha, beta=beta):
                out = default_output(dtype)
                a, b = values(self.random, (9, 12), dtype), values(self.random, (12, 5), dtype)
                c = values(self.random, (9, 5), dtype)
                c = c.astype(np.int32) if dtype == "int8" else c
                d = self.connection.matmul(a, b, c=c, alpha=alpha, beta=beta, dtype=dtype,
                                           out_dtype=out)
                assert_is_product(d, a, b, dtype, alpha=alpha, beta=beta, c=c)

    def test_beta_without_c_adds_to_out(self) -> None:
        a, b = values(self.random, (4, 6), "fp64"), values(self.random, (6, 3), "fp64")
        out = values(self.random, (4, 3), "fp64")
        before = out.copy()
        self.assertIs(self.connection.matmul(a, b, out=out, beta=2), out)
        assert_is_product(out, a, b, "fp64", beta=2, c=before)

    def test_beta_zero_reads_neither_c_nor_out(self) -> None:
        nan = np.full((4, 4), np.nan, np.float32)
        one = np.eye(4, dtype=np.float32)
        np.testing.assert_array_equal(self.connection.matmul(one, one, c=nan, out=nan.copy()), one)

    def test_nan_and_infinity_propagate(self) -> None:
        a = np.ones((3, 3), np.float32)
        a[1, 1] = np.nan
        a[2, 0] = np.inf
        d = self.connection.matmul(a, np.ones((3, 2), np.float32))
        self.assertTrue(np.isnan(d[1]).all() and np.isinf(d[2]).all() and (d[0] == 3).all())

    def test_empty_shapes_are_numpys(self) -> None:
        shapes = [((0, 3), (3, 4)), ((3, 0), (0, 4)), ((3, 4), (4, 0)), ((0, 2, 3), (0, 3, 4)),
                  ((0, 2, 3), (1, 3, 4)), ((2, 0, 3), (2, 3, 4)), ((0,), (0,)), ((0,), (0, 3))]
        for left, right in shapes:
            with self.subTest(a=left, b=right):
                a, b = np.ones(left, np.float32), np.ones(right, np.float32)
                np.testing.assert_array_equal(self.connection.matmul(a, b), np.matmul(a, b))

    def test_k_zero_leaves_beta_c(self) -> None:
        c = values(self.random, (3, 4), "fp32")
        a, b = np.empty((3, 0), np.float32), np.empty((0, 4), np.float32)
        np.testing.assert_array_equal(self.connection.matmul(a, b, c=c, beta=2), 2 * c)

    def test_vectors_and_batches_have_numpys_shapes(self) -> None:
        shapes = [((5,), (5,)), ((5,), (5, 3)), ((4, 5), (5,)), ((2, 4, 5), (5,)), 
                  ((5,), (2, 5, 3)), ((2, 4, 5), (5, 3)), ((4, 5), (2, 5, 3)),
                  ((1, 4, 5), (7, 5, 3)),
                  ((7, 4, 5), (1, 5, 3)), ((7, 4, 5), (7, 5, 3))]
        for left, right in shapes:
            with self.subTest(a=left, b=right):
                a, b = values(self.random, left, "fp64"), values(self.random, right, "fp64")
                d = self.connection.matmul(a, b)
                self.assertEqual(np.shape(d), np.shape(np.matmul(a, b)))
                np.testing.assert_allclose(d, np.matmul(a, b), rtol=1e-12, atol=1e-14)

    def test_types_are_promoted_as_by_numpy(self) -> None:
        one = {name: np.ones((2, 2), name) for name in ("int8", "float16", "float32", "float64")}
        for left, right in itertools.product(one, one):
            with self.subTest(a=left, b=right):
                d = self.connection.matmul(one[left], one[right])
                expected = np.result_type(one[left], one[right])
                self.assertEqual(d.dtype, np.int32 if expected == np.int8 else expected)
                self.assertTrue((d == 2).all())

    def test_dtype_converts(self) -> None:
        a, b = values(self.random, (8, 9), "fp64"), values(self.random, (9, 4), "fp64")
        d = self.connection.matmul(a, b, dtype="bf16", out_dtype="fp32")
        rounded = [gemmd.to_bf16(x).view(np.uint16) for x in (a, b)]
        assert_is_product(d, *rounded, "bf16", "fp32")
        self.assertEqual(self.connection.matmul([[1.5]], [[2]], dtype=np.float32)[0, 0], 3)

    def test_int8_wraps_modulo_two_to_the_32(self) -> None:
        a = np.full((1, 200000), -128, np.int8)
        assert_is_product(self.connection.matmul(a, a.T), a, a.T, "int8")

    def test_bf16_bits_in_bits_out(self) -> None:
        a = values(self.random, (6, 6), "bf16")
        self.assertEqual(self.connection.matmul(a, a, dtype="bf16").dtype, np.uint16)
        self.assertEqual(self.connection.matmul(a, a, dtype="bf16", out_dtype="fp32").dtype,
                         np.float32)

    def test_bf16_of_ml_dtypes_names_itself(self) -> None:
        try:
            import ml_dtypes
        except ImportError:
            self.skipTest("ml_dtypes is not installed")
        a = values(self.random, (6, 5), "bf16").view(ml_dtypes.bfloat16)
        d = self.connection.matmul(a, a.T)
        self.assertEqual(d.dtype, ml_dtypes.bfloat16)
        assert_is_product(d.view(np.uint16), a.view(np.uint16), a.T.view(np.uint16), "bf16")
        self.assertEqual(self.connection.empty(3, "bf16").dtype, ml_dtypes.bfloat16)

    def test_rounding_to_bf16_is_nearest_even(self) -> None:
        exactly = np.arange(0x10000, dtype=np.uint32).astype(np.uint16)
        floats = gemmd.from_bf16(exactly)
        there = gemmd.to_bf16(floats).view(np.uint16)
        is_nan = np.isnan(floats)
        np.testing.assert_array_equal(there[~is_nan], exactly[~is_nan])
        self.assertTrue(np.isnan(gemmd.from_bf16(there[is_nan])).all())
        halves = np.array([0x3F808000, 0x3F818000, 0x3F808001, 0x7F7FFFFF, 0x7F800001], np.uint32)
        rounded = gemmd.to_bf16(halves.view(np.float32)).view(np.uint16)
        self.assertEqual([hex(x) for x in rounded], ["0x3f80", "0x3f82", "0x3f81", "0x7f80",
                                                     "0x7fc0"])

    def test_info_says_what_ran(self) -> None:
        future = self.connection.submit(np.eye(4), np.eye(4))
        self.assertIn("fp64", (future.result() is not None and future.info).configuration)

    def test_explain_says_what_would(self) -> None:
        self.assertIn("configuration", self.connection.explain(np.eye(4), np.eye(4)))


if __name__ == "__main__":
    unittest.main()
