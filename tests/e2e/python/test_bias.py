"""Bias and activation of matmul() against float64, and the shapes that a bias may have."""

import itertools
import math
import unittest

import numpy as np
from support import PAIRS, DaemonTest, default_output, exact, values

import gemmd

FUNCTIONS = {
    None: lambda x: x,
    "none": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2,
    "gelu_tanh": lambda x: x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2,
    "silu": lambda x: x / (1 + np.exp(-x)),
}

# Of results that are sums of 12 products of numbers up to 1, a bias and their functions: several
# times the bound of core/problem.h at its largest.
TOLERANCE = {"bf16": 0.1, "fp16": 0.02, "fp32": 1e-4, "fp64": 1e-12, "int32": 0}


class Bias(DaemonTest):
    def check(self, given, before, out: str, activation=None) -> None:
        reference = FUNCTIONS[activation](before)
        value = exact(given, out)
        self.assertEqual(value.shape, np.shape(reference))
        worst = np.max(np.abs(value - reference), initial=0)
        self.assertLessEqual(worst, TOLERANCE[out])

    def test_every_type_has_bias_and_activation(self) -> None:
        for (dtype, out), activation in itertools.product(PAIRS, FUNCTIONS):
            out = out or default_output(dtype)
            if dtype == "int8" and activation not in (None, "none", "relu"):
                continue
            with self.subTest(dtype=dtype, out=out, activation=activation):
                a, b = values(self.random, (9, 12), dtype), values(self.random, (12, 7), dtype)
                bias = np.arange(7) - 3
                d = self.connection.matmul(a, b, dtype=dtype, out_dtype=out, bias=bias,
                                           activation=activation)
                self.check(d, exact(a, dtype) @ exact(b, dtype) + bias, out, activation)

    def test_a_bias_broadcasts_as_in_numpy(self) -> None:
        a, b = values(self.random, (3, 9, 12), "fp32"), values(self.random, (12, 7), "fp32")
        product = exact(a, "fp32") @ exact(b, "fp32")
        for shape in [(), (1,), (7,), (1, 7), (9, 1), (1, 1, 7), (3, 1, 7), (3, 9, 1), (3, 1, 1)]:
            for order in "CF":
                with self.subTest(shape=shape, order=order):
                    bias = self.random.standard_normal(shape).astype(np.float32)
                    out = np.empty((3, 9, 7), np.float32)
                    if order == "F":
                        out = np.empty((3, 7, 9), np.float32).swapaxes(1, 2)
                    gemmd.matmul(a, b, bias=bias, out=out, activation="silu",
                                 connection=self.connection)
                    self.check(out, product + bias, "fp32", "silu")

    def test_a_bias_with_steps_is_copied(self) -> None:
        a, b = values(self.random, (4, 5), "fp32"), values(self.random, (5, 6), "fp32")
        bias = np.arange(18, dtype=np.float32)[::-3]
        d = self.connection.matmul(a, b, bias=bias)
        self.check(d, exact(a, "fp32") @ exact(b, "fp32") + bias, "fp32")

    def test_vectors_have_a_bias_of_their_own_shape(self) -> None:
        a, v = values(self.random, (4, 5), "fp64"), values(self.random, (5,), "fp64")
        bias = np.arange(4.0)
        self.check(self.connection.matmul(a, v, bias=bias), a @ v + bias, "fp64")
        self.check(self.connection.matmul(v, a.T, bias=bias), v @ a.T + bias, "fp64")

    def test_shared_and_device_memory_hold_a_bias(self) -> None:
        a, b = values(self.random, (4, 5), "fp32"), values(self.random, (5, 6), "fp32")
        bias = self.random.standard_normal(6).astype(np.float32)
        product = exact(a, "fp32") @ exact(b, "fp32")
        shared = self.connection.empty(6, "fp32")
        shared[:] = bias
        self.check(self.connection.matmul(a, b, bias=shared), product + bias, "fp32")
        device = self.connection.device_buffer(6, "fp32")
        device.upload(bias)
        self.check(self.connection.matmul(a, b, bias=device), product + bias, "fp32")

    def test_a_bias_in_the_result_is_read_first(self) -> None:
        a, b = values(self.random, (4, 5), "fp32"), values(self.random, (5, 6), "fp32")
        out = self.connection.empty((4, 6), "fp32")
        out[:] = 3
        self.connection.matmul(a, b, bias=out[0], out=out)
        self.check(out, exact(a, "fp32") @ exact(b, "fp32") + 3, "fp32")

    def test_what_is_wrong_is_named(self) -> None:
        a = np.ones((4, 4), np.float32)
        for bias in (np.ones(3), np.ones((4, 4)), np.ones((1, 1, 4))):
            with self.subTest(shape=bias.shape):
                with self.assertRaises(gemmd.InvalidArgument) as caught:
                    self.connection.matmul(a, a, bias=bias)
                self.assertEqual(caught.exception.argument, "bias")
        with self.assertRaises(gemmd.InvalidArgument) as caught:
            self.connection.matmul(a, a, activation="ReLU")
        self.assertEqual(caught.exception.argument, "activation")
        with self.assertRaises(gemmd.Unsupported):
            self.connection.matmul(a.astype(np.int8), a.astype(np.int8), activation="gelu")


if __name__ == "__main__":
    unittest.main()
