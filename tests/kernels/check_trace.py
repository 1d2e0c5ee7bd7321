#!/usr/bin/env python3
"""Runs emulate_stamps and opens the trace that it leaves, as a viewer would."""

import json
import os
import subprocess
import sys
import tempfile

STEPS = 7


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace.json")
        status = subprocess.run([sys.argv[1], path], check=False).returncode
        with open(path, encoding="utf-8") as file:
            events = json.load(file)["traceEvents"]
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    lanes = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    slices = [e for e in events if e["ph"] == "X"]
    assert len({name.split(":")[0] for name in names.values()}) == STEPS, names
    end = {}
    for e in sorted(slices, key=lambda e: e["ts"]):
        lane = e["pid"], e["tid"]
        assert lane in lanes and e["pid"] in names, e
        assert e["dur"] >= 0, e
        assert e["ts"] >= end.get(lane, e["ts"]) - 2e-4, f"{lanes[lane]} has two at a time: {e}"
        end[lane] = e["ts"] + e["dur"]
    for kind in ("TMA", "MMA", "epilogue"):
        for pid, name in names.items():
            assert any(p == pid and lanes[p, t].startswith(kind) for p, t in end), (name, kind)
    print(f"{len(slices)} slices in {len(end)} lanes of {len(names)} CTAs")
    return status


if __name__ == "__main__":
    sys.exit(main())
