"""A product three ways: plain arrays, shared memory and device weights, many at once.

Needs a running daemon; see the README beside this folder.
"""

import time

import numpy as np

import gemmd


def main() -> None:
    random = np.random.default_rng(0)
    a = random.standard_normal((256, 512), np.float32)
    b = random.standard_normal((512, 384), np.float32)
    expected = a @ b

    with gemmd.connect() as connection:
        print(connection.info())

        d = connection.matmul(a, b)
        print("plain arrays:   largest difference to numpy", abs(d - expected).max())

        x, y = connection.array(a), connection.empty(expected.shape)
        weights = connection.device_buffer(b.shape).upload(b)
        connection.matmul(x, weights, out=y)
        print("without copies: largest difference to numpy", abs(y - expected).max())

        begun = time.perf_counter()
        futures = [connection.submit(x, weights, out=y) for _ in range(200)]
        for future in futures:
            future.result()
        seconds = time.perf_counter() - begun
        print(f"200 at once: {len(futures) / seconds:.0f} products/s,",
              f"by {futures[-1].info.configuration}")


if __name__ == "__main__":
    main()
