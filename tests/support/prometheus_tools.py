"""Debian's Prometheus: installed, or unpacked by `./dev test` into build/prometheus.

Tests that need it are skipped without it.
"""
import os
import shutil
import subprocess
import unittest
from pathlib import Path

UNPACKED = Path(__file__).parents[2] / "build" / "prometheus" / "usr" / "bin"


def find(program):
    return shutil.which(program, path=f"{os.environ['PATH']}{os.pathsep}{UNPACKED}")


def promtool(*arguments, text=None):
    return subprocess.run([find("promtool"), *arguments], input=text, capture_output=True, text=True,
                          timeout=120)


def needs(program):
    """Decorates a test that needs the program."""
    return unittest.skipUnless(
        find(program), f"{program} is neither in PATH nor in {UNPACKED}: `./dev test` fetches it from "
                       "Debian's package prometheus")
