"""Debian's Prometheus: installed, or unpacked by `./dev test` into build/prometheus.

Tests that need it are skipped where it is not there, and say so.
"""
import os
import shutil
import unittest
from pathlib import Path

UNPACKED = Path(os.environ["SOURCE_FOLDER"]) / "build" / "prometheus" / "usr" / "bin"


def find(program):
    return shutil.which(program, path=f"{os.environ['PATH']}{os.pathsep}{UNPACKED}")


def needs(program):
    """Decorates a test that cannot do without the program."""
    return unittest.skipUnless(
        find(program), f"{program} is neither in PATH nor in {UNPACKED}: `./dev test` fetches it from "
                       "Debian's package prometheus")
