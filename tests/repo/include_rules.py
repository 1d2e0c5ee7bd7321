#!/usr/bin/env python3
"""Holds the dependency direction of daemon/README.md: which folder may include which, and which
library's header may appear where. Without arguments it explains itself; with a checkout's root it
checks it; with --self-test it proves that it finds violations."""

import os
import re
import sys
import tempfile

# folder -> folders whose headers it may include (itself is always allowed).
# main -> front -> {plan, jit, link} -> proto -> core, worker -> {link, core}, client -> {proto, core}
MAY_USE = {
    "daemon/core": [],
    "proto": ["daemon/core"],
    "daemon/link": ["daemon/core", "kernels_src/abi"],
    "daemon/plan": ["proto", "daemon/core"],
    "daemon/jit": ["daemon/plan", "proto", "daemon/core", "kernels_src", "daemon"],
    "daemon/worker": ["daemon/link", "daemon/core", "kernels_src/abi", "daemon"],
    "daemon/front": ["daemon/plan", "daemon/jit", "daemon/link", "proto", "daemon/core",
                     "kernels_src/abi", "daemon"],
    "daemon": ["daemon/core"],
    # gemmctl compile works without a daemon, so it alone may use the compiler.
    "client": ["proto", "daemon/core", "daemon/plan", "daemon/jit"],
}
# library header -> folders that may include it
LIBRARY = {
    r"uv\.h": ["daemon/front"],
    r"msgpack(\.h|/.*)": ["proto"],
    r"nvrtc\.h": ["daemon/jit"],
    r"cuda\.h": ["daemon/worker"],
    r"cblas\.h": [],
    r"xxhash\.h": ["daemon/jit"],
    r"systemd/.*": ["daemon/front"],
    r"ini\.h": ["daemon/front"],
}
# The library proper must not reach into the compiler; only gemmctl may.
GEMMCTL_ONLY = ["daemon/plan", "daemon/jit"]
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)


def folder_of(path):
    """The longest rule folder that holds the file; None when no rule speaks of it."""
    folder = os.path.dirname(path)
    while folder:
        if folder in MAY_USE:
            return folder
        folder = os.path.dirname(folder)
    return None


def check_file(path, text):
    folder = folder_of(path)
    if folder is None:
        return
    for bracket, name in INCLUDE.findall(text):
        for pattern, allowed in LIBRARY.items():
            if re.fullmatch(pattern, name) and folder not in allowed:
                yield f"{path}: <{name}> may be included only in {allowed or 'no folder'}"
        if bracket == "<":
            continue
        target = os.path.normpath(os.path.join(os.path.dirname(path), name))
        used = os.path.dirname(target)
        if used == folder or used.startswith(folder + "/examples"):
            continue
        if used not in MAY_USE[folder]:
            yield f"{path}: {folder} may not use {used} ({name})"
        elif folder == "client" and used in GEMMCTL_ONLY and "gemmctl" not in path:
            yield f"{path}: only gemmctl may use {used} ({name})"


def check_tree(root):
    for top in ("daemon", "proto", "client"):
        for directory, _, files in os.walk(os.path.join(root, top)):
            for name in sorted(files):
                if name.endswith((".c", ".h")):
                    full = os.path.join(directory, name)
                    with open(full, encoding="utf-8") as file:
                        yield from check_file(os.path.relpath(full, root), file.read())


def self_test():
    bad = {
        "daemon/front/a.c": "#include <cuda.h>\n",
        "daemon/worker/b.c": '#include "../front/session.h"\n',
        "daemon/core/c.c": '#include "../../proto/frame.h"\n',
        "proto/d.c": "#include <uv.h>\n",
        "client/e.c": '#include "../daemon/jit/nvrtc.h"\n',
        "daemon/jit/f.c": "#include <msgpack.h>\n",
    }
    with tempfile.TemporaryDirectory() as root:
        for path, text in bad.items():
            os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                file.write(text)
        found = {line.split(":")[0] for line in check_tree(root)}
    missed = sorted(set(bad) - found)
    for path in missed:
        print(f"not found: {path}")
    return 1 if missed else 0


def main():
    if len(sys.argv) != 2:
        print(__doc__)
        return 2
    if sys.argv[1] == "--self-test":
        return self_test()
    violations = list(check_tree(sys.argv[1]))
    print("\n".join(violations) or "include rules hold")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
