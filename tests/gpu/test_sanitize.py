#!/usr/bin/env python3
"""sanitize.py against a stand-in for compute-sanitizer: what each outcome becomes."""

import os
import re
import subprocess
import sys
import tempfile
import unittest

GEMMCTL = sys.argv.pop() if len(sys.argv) > 1 else None
SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "sanitize.py")
CLEAN = "========= ERROR SUMMARY: 0 errors"
RACE = """========= Error: Race reported between Write access at f in a.cuh:1
=========     and Read access at g in b.cuh:2 [8 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)"""


class Sanitize(unittest.TestCase):
    def run_script(self, output, status=0, explained="", arguments=(), delay=0):
        with tempfile.TemporaryDirectory() as folder:
            tool = os.path.join(folder, "tool")
            with open(tool, "w", encoding="utf-8") as file:
                file.write(f"#!/bin/sh\nsleep {delay}\ncat <<'END'\n{output}\nEND\nexit {status}\n")
            os.chmod(tool, 0o755)
            supp = os.path.join(folder, "supp")
            with open(supp, "w", encoding="utf-8") as file:
                file.write(explained)
            return subprocess.run([sys.executable, SCRIPT, "--sanitizer", tool, "--runner", "none",
                                   "--explained", supp, "--only", "swapped", *arguments],
                                  text=True, stdout=subprocess.PIPE, check=False)

    def test_all_configurations_exist(self):
        if GEMMCTL is None:
            self.skipTest("no gemmctl to ask")
        with open(SCRIPT, encoding="utf-8") as file:
            named = re.findall(r'"(sm90a\.[^"]*)"', file.read())
        listed = subprocess.run([GEMMCTL, "compile", "--arch", "90", "--list"], text=True,
                                stdout=subprocess.PIPE, check=True).stdout.split()
        self.assertGreater(len(named), 10)
        self.assertEqual([name for name in named if name not in listed], [])

    def test_clean_runs_end_well(self):
        done = self.run_script(CLEAN)
        self.assertEqual((done.returncode, done.stdout.count("clean (")), (0, 3))

    def test_a_report_is_shown_and_fails(self):
        done = self.run_script(RACE, 99, arguments=["--tool", "racecheck"])
        self.assertEqual(done.returncode, 1)
        self.assertIn("1 reports", done.stdout)
        self.assertIn("Write access at f in a.cuh:1", done.stdout)

    def test_an_explained_report_is_no_failure(self):
        done = self.run_script(RACE, 99, "# the rule\nswapped at f .*at g\n",
                               ["--tool", "racecheck"])
        self.assertEqual(done.returncode, 0)
        self.assertIn("explained", done.stdout)

    def test_another_class_is_not_explained_by_it(self):
        done = self.run_script(RACE, 99, "simt at f .*at g\n", ["--tool", "racecheck"])
        self.assertEqual(done.returncode, 1)

    def test_memcheck_has_no_explanations(self):
        text = "========= Invalid __global__ read of size 16 bytes\n========= ERROR SUMMARY: 1 error"
        done = self.run_script(text, 99, "swapped Invalid\n", ["--tool", "memcheck"])
        self.assertEqual(done.returncode, 1)

    def test_a_wrong_product_fails_though_the_tool_is_content(self):
        self.assertEqual(self.run_script(CLEAN, 1).returncode, 1)

    def test_no_summary_fails(self):
        self.assertEqual(self.run_script("no device").returncode, 1)

    def test_a_late_run_is_not_finished(self):
        done = self.run_script(CLEAN, arguments=["--tool", "memcheck", "--timeout", "0.2"], delay=1)
        self.assertEqual(done.returncode, 1)
        self.assertIn("not finished", done.stdout)


if __name__ == "__main__":
    unittest.main()
