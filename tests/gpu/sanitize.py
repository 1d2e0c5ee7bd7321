#!/usr/bin/env python3
"""Runs compute-sanitizer's memcheck, synccheck and racecheck over one configuration of each class.

Each is a process of its own (run_kernel, which checks D, too) on the smallest product that goes
round the ring of K tiles twice and gives a CTA that walks two tiles. Prints a table; exit status 1
when a tool reports something that racecheck.supp does not explain, when D is wrong, or when a run
did not finish in time.
"""

import argparse
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOOLS = ["memcheck", "synccheck", "racecheck"]

# class, configuration, product, options of run_kernel
CLASSES = [
    ("mma, int8", "sm90a.int8.int32.nt.64x64x128.s3.c1x1.mma.v16", "100x64x896", []),
    ("mma, fp64", "sm90a.fp64.fp64.nt.64x64x16.s3.c1x1.mma.v16", "100x64x112", []),
    ("mma, elements", "sm90a.bf16.bf16.nt.128x128x32.s2.c1x1.mma.element", "140x129x163", []),
    ("simt", "sm90a.fp32.fp32.nt.64x64x32.s3.c1x1.simt.v16", "100x64x224", []),
    ("tiled", "sm90a.bf16.bf16.nt.128x256x64.s1.c1x1.tiled.tma", "200x256x192", []),
    ("tma", "sm90a.bf16.bf16.nt.128x256x64.s1.c1x1.tma.tma", "200x256x192", []),
    ("pipelined", "sm90a.bf16.bf16.nt.128x256x64.s4.c1x1.pipelined.tma", "200x256x576", []),
    ("persistent", "sm90a.bf16.bf16.nt.128x256x64.s4.c1x1.persistent.tma", "200x256x576", []),
    ("cooperative", "sm90a.bf16.bf16.nt.128x256x64.s4.c1x1.coop.tma", "200x256x576", []),
    ("cooperative, small", "sm90a.bf16.bf16.nt.64x64x64.s5.c1x1.coop.tma", "100x64x1088", []),
    ("storing anywhere, C", "sm90a.bf16.bf16.nt.128x128x64.s6.c2x1.coop.repack", "200x264x576",
     ["--beta", "1", "--ctas", "2"]),
    ("storing anywhere", "sm90a.bf16.bf16.nt.128x128x64.s6.c2x1.coop.repack", "200x263x577",
     ["--ctas", "2", "--launches", "2"]),
    ("storing anywhere, large", "sm90a.bf16.bf16.nt.128x256x64.s4.c2x1.coop.repack", "200x515x577",
     ["--ctas", "2", "--launches", "2"]),
    ("storing anywhere, 32 bits", "sm90a.bf16.fp32.nt.128x128x64.s6.c2x1.coop.repack", "200x263x577",
     ["--ctas", "2", "--launches", "2"]),
    ("three groups", "sm90a.bf16.bf16.nt.192x128x64.s5.c1x2.coop.tma", "300x512x704",
     ["--ctas", "2"]),
    ("ping-pong", "sm90a.bf16.bf16.nt.128x128x64.s6.c2x1.pingpong.tma", "200x512x448",
     ["--ctas", "2"]),
    ("clustered", "sm90a.bf16.bf16.nt.128x256x64.s4.c2x1.coop.tma", "200x512x576",
     ["--ctas", "2"]),
    ("late", "sm90a.bf16.bf16.nt.128x256x64.s4.c2x1.coop.tma", "500x512x1088", ["--ctas", "2"]),
    ("swapped", "sm90a.bf16.bf16.nt.64x64x128.s6.c1x1.split.tma.swapped", "24x128x1664", []),
    ("K in the cluster", "sm90a.bf16.bf16.nt.128x128x64.s5.c1x1x2.split.tma", "100x256x1408",
     ["--ctas", "2"]),
    ("K by workspace", "sm90a.bf16.bf16.nt.64x64x128.s6.c1x1.split.tma.swapped", "24x64x3328",
     ["--ctas", "2", "--splits", "2", "--launches", "2"]),
    ("parts", "sm90a.bf16.bf16.nt.64x128x64.s9.c2x1.parts.tma", "100x128x1216",
     ["--ctas", "4", "--splits", "2", "--launches", "2"]),
    ("repacking", "sm90a.bf16.bf16.nt.64x64x128.s6.c1x1.split.repack.swapped", "100x63x1085", []),
    ("strips", "sm90a.bf16.bf16.nt.128x112x64.s1.c1x1.strip.element", "300x257x101", []),
    ("strips, C", "sm90a.bf16.bf16.nn.128x112x64.s1.c1x1.strip.element", "300x257x101",
     ["--beta", "1"]),
    ("strips, A transposed", "sm90a.bf16.bf16.tt.128x112x64.s1.c1x1.strip.element", "300x257x101",
     []),
    ("strips, one run", "sm90a.bf16.bf16.nt.128x112x64.s1.c1x1.strip.element", "300x58x3", []),
    ("on CUDA cores, short K", "sm90a.bf16.bf16.nt.64x248x8.s1.c1x1.outer.element", "100x257x21",
     []),
    ("on CUDA cores, one run", "sm90a.bf16.bf16.nt.64x248x8.s1.c1x1.outer.element", "100x11x21",
     []),
    ("on CUDA cores, tall", "sm90a.bf16.bf16.nt.512x24x8.s1.c1x1.outer.element", "700x25x21", []),
    ("on CUDA cores, few elements", "sm90a.bf16.bf16.nt.1x1x16.s1.c1x1.dot.element", "7x9x1085",
     []),
    ("streaming", "sm90a.bf16.bf16.nt.512x64x32.s4.c1x1.stream.element", "700x21x1085",
     ["--ctas", "3", "--splits", "3", "--launches", "2"]),
    ("realigning", "sm90a.bf16.bf16.nt.64x64x64.s2.c1x1.split.realign.swapped", "100x63x1085", []),
]

SUMMARY = re.compile(r"(?:ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard)")
HAZARD = re.compile(r"=+ (Error|Warning): (.*)")


def read_explained(path):
    """Pairs of a class pattern and a report pattern; what explains them follows behind '#'."""
    with open(path, encoding="utf-8") as file:
        lines = [line.split("#")[0].strip() for line in file]
    pairs = [line.split(None, 1) for line in lines if line]
    return [(re.compile(a.replace("_", " ")), re.compile(b)) for a, b in pairs]


def reports(text):
    """What the tool says, each report with the lines that belong to it as one string."""
    found, current = [], None
    for line in text.splitlines():
        if not line.startswith("========="):
            continue
        body = line.lstrip("=").rstrip()
        if re.match(r" (Error|Warning|Invalid|Barrier|Divergent|Program|Uninit)", body):
            current = [body.strip()]
            found.append(current)
        elif current is not None and body.startswith("     "):
            current.append(body.strip())
        else:
            current = None
    return [" | ".join(report) for report in found]


def run(job):
    options, tool, (name, config, product, extra) = job
    command = [options.sanitizer, "--tool", tool, "--error-exitcode", "99", "--print-limit", "200"]
    if tool == "memcheck":
        command += ["--leak-check", "no"]
    begun = time.monotonic()
    try:
        done = subprocess.run(command + [options.runner, config, product] + extra, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=options.timeout, check=False)
        status, text = done.returncode, done.stdout
    except subprocess.TimeoutExpired as late:
        status, text = None, (late.stdout or b"").decode(errors="replace")
    if options.output:
        file_name = re.sub(r"\W+", "-", name) + "." + tool + ".txt"
        with open(os.path.join(options.output, file_name), "w", encoding="utf-8") as file:
            file.write(text)
    return name, tool, status, text, time.monotonic() - begun


def judge(result, explained):
    """The cell of the table, and what is not explained."""
    name, tool, status, text, seconds = result
    if status is None:
        return "not finished", [f"no end within {seconds:.0f} s"]
    found = reports(text)
    open_reports = [report for report in found if tool != "racecheck" or not any(
        a.search(name) and b.search(report) for a, b in explained)]
    summary = SUMMARY.findall(text)
    if not summary:
        return "failed", open_reports + text.splitlines()[-3:]
    counted = sum(int(a or b) for a, b in summary)
    if status not in (0, 99):
        return "wrong", open_reports + text.splitlines()[-3:]
    if counted == 0:
        return "clean", []
    if found and not open_reports:
        return "explained", []
    return f"{counted} reports", open_reports or ["reports that this script does not read"]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", choices=TOOLS, action="append", help="default: all three")
    parser.add_argument("--only", default="", help="classes whose name contains this")
    parser.add_argument("--jobs", type=int, default=min(os.cpu_count() or 1, 16))
    parser.add_argument("--timeout", type=float, default=120, help="seconds for each run")
    parser.add_argument("--output", help="folder for each run's whole output")
    parser.add_argument("--runner", default=os.path.join(HERE, "run_kernel"))
    parser.add_argument("--sanitizer", default=shutil.which("compute-sanitizer") or
                        "/usr/local/cuda/bin/compute-sanitizer")
    parser.add_argument("--explained", default=os.path.join(HERE, "racecheck.supp"))
    options = parser.parse_args()
    explained = read_explained(options.explained)
    tools = options.tool or TOOLS
    classes = [c for c in CLASSES if options.only in c[0]]
    # racecheck takes longest, so it begins first
    jobs = [(options, tool, c) for tool in reversed(tools) for c in classes]
    if options.output:
        os.makedirs(options.output, exist_ok=True)
    begun = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        results = {(r[0], r[1]): r for r in pool.map(run, jobs)}
    left = {}
    print(f"{'class':<18}" + "".join(f"{tool:>22}" for tool in tools) + "  configuration, product")
    for name, config, product, extra in classes:
        cells = []
        for tool in tools:
            cell, unexplained = judge(results[name, tool], explained)
            cells.append(f"{cell} ({results[name, tool][4]:.1f} s)")
            if unexplained:
                left[name, tool] = unexplained
        print(f"{name:<18}" + "".join(f"{cell:>22}" for cell in cells) +
              f"  {config} {product} {' '.join(extra)}")
    for (name, tool), unexplained in left.items():
        for report in list(dict.fromkeys(unexplained))[:10]:
            print(f"# {name}, {tool}: {report}")
    print(f"# {len(jobs)} runs, {options.jobs} at a time, {time.monotonic() - begun:.0f} s")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
