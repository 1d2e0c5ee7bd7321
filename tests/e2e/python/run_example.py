"""Runs the example, and every Python block of the README in one program, against a daemon."""

import os
import re
import runpy
import sys

from support import Daemon


def main() -> None:
    folder = sys.argv[1]
    daemon = Daemon()
    os.environ["GEMMD_SOCKET"] = daemon.socket
    runpy.run_path(os.path.join(folder, "examples", "matmul.py"), run_name="__main__")
    with open(os.path.join(folder, "README.md"), encoding="utf-8") as file:
        blocks = re.findall(r"```python\n(.*?)```", file.read(), re.S)
    assert len(blocks) == 3, len(blocks)
    namespace: dict = {}
    exec("\n".join(blocks), namespace)
    import asyncio

    import gemmd

    with gemmd.connect() as connection:
        served = asyncio.run(namespace["serve"](connection, namespace["a"], namespace["b"]))
    assert (served == 32).all() and (namespace["d"] == 96).all()
    gemmd.default_connection().close()
    daemon.stop()


if __name__ == "__main__":
    main()
