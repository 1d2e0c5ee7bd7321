#!/usr/bin/env python3
"""Writes ptx/wgmma_mma*.cuh: one wrapper of wgmma.mma_async for each N and type in use."""

import textwrap

TYPES = [("bf16", "bf16"), ("f16", "f16")]
FILES = {
    "wgmma_mma.cuh": [16, 32, 64, 112, 128],
    "wgmma_mma_wide.cuh": [176, 192, 224, 256],
}

HEAD = """\
/*
 * wgmma.mma_async m64nNk16 with both operands in shared memory, fp32 sums. Written by ptx/wgmma.py.
 *
 * The accumulators of a warpgroup: warp w has rows 16w to 16w + 15; of those lane l has, in
 * d[4j + 2i + e], row l / 4 + 8i and column 8j + 2 * (l % 4) + e. scale_d = 0 ignores what d held.
 */
#pragma once

#include "ptx/target_sm90a.cuh"
"""


def wrap(text, indent):
    return textwrap.fill(text, width=99, initial_indent=indent, subsequent_indent=indent)


def quoted(text, indent):
    lines = textwrap.wrap(text, width=99 - len(indent) - 4)
    return "\n".join(f'{indent}"{line}{"" if line == lines[-1] else " "}"' for line in lines)


def wrapper(name, kind, n):
    count = n // 2
    d = ", ".join(f"%{i}" for i in range(count))
    outputs = ", ".join(f'"+f"(d[{i}])' for i in range(count))
    return "\n".join([
        "",
        "template <int TNSP_A, int TNSP_B>",
        f"DEVICE void wgmma_m64k16_f32_{name}(float (&d)[{count}], u64 desc_a, u64 desc_b, "
        "u32 scale_d)",
        "{",
        "    asm volatile(",
        '        "{\\n"',
        '        ".reg .pred p;\\n"',
        f'        "setp.ne.b32 p, %{count + 2}, 0;\\n"',
        f'        "wgmma.mma_async.sync.aligned.m64n{n}k16.f32.{kind}.{kind} "',
        quoted("{" + d + "},", "        "),
        f'        " %{count}, %{count + 1}, p, 1, 1, %{count + 3}, %{count + 4};\\n"',
        '        "}"',
        wrap(": " + outputs, "        "),
        '        : "l"(desc_a), "l"(desc_b), "r"(scale_d), "n"(TNSP_A), "n"(TNSP_B));',
        "}",
        ""])


def fence(n):
    count = n // 2
    operands = ", ".join(f'"+f"(d[{i}])' for i in range(count))
    return "\n".join([
        "",
        "/* No instruction: the compiler moves no access to d across it. */",
        f"DEVICE void accumulators_fence(float (&d)[{count}])",
        "{",
        '    asm volatile(""',
        wrap(": " + operands, "                 ") + "::\"memory\");",
        "}",
        ""])


for name, widths in FILES.items():
    with open(__file__.replace("wgmma.py", name), "w", encoding="utf-8") as file:
        file.write(HEAD)
        for columns in widths:
            for type_name, type_kind in TYPES:
                file.write(wrapper(type_name, type_kind, columns))
            file.write(fence(columns))
