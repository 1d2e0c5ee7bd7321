#!/usr/bin/env python3
"""A reader holds 500 lines; a source file may not be longer. Generated and data files do not count."""

import os
import sys

LINES_MAX = 500
SUFFIXES = (".c", ".h", ".cu", ".cuh", ".py", ".cmake")


def main():
    root = sys.argv[1]
    names = [os.path.relpath(os.path.join(d, f), root)
             for top in ("daemon", "proto", "client", "kernels_src", "tests", "deploy")
             for d, _, files in os.walk(os.path.join(root, top)) for f in files]
    failed = 0
    for name in sorted(names):
        path = os.path.join(root, name)
        if name.endswith(SUFFIXES):
            with open(path, encoding="utf-8") as file:
                lines = sum(1 for _ in file)
            if lines > LINES_MAX:
                print(f"{name}: {lines} lines, at most {LINES_MAX}")
                failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
