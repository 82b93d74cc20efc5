"""Runs the C++ programs' commands with odd values of every option: no signal ends a program, and every run ends soon.

A coordinator or worker that would start finds its HTTP port taken. A command's calls go to a server without methods.
Each run has a folder of its own, in which a value may be a name of a file.
"""
import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
import unittest
from concurrent import futures
from pathlib import Path

import grpc
import numpy

BUILD = Path(os.environ["HILBERT_RING_BUILD"])
PROGRAMS = BUILD / "bin"
SECONDS = 20  # of a run
# FOLDER and SOCKET exist, and no program may replace them. No value is a path outside of the run's folder, because a
# program that runs as root could damage files there.
FOLDER, SOCKET = "folder", "socket"
VALUES = ["", "-1", "0", "1e400", "nan", "18446744073709551616", "[", "\u00fc\x01", "x" * 5000, FOLDER, SOCKET,
          "no/such/file", ",", "a=b"]
SPEC = {"segments": [8], "dilations": [1]}
TENSORS = {"--q": "q.npy", "--k": "q.npy", "--v": "q.npy"}
# Arguments that each command needs to reach its work. The key "" holds words without an option.
BASES = {
    ("hilbert-ring",): {"": ["status"]},
    ("hilbert-ring", "attend"): {**TENSORS, "--spec": "spec.json", "--out": "out.npy"},
    ("hilbert-ring", "attend-many"): {"": ["jobs.jsonl"], "--spec": "spec.json"},
    ("hilbert-ring", "encode"): {"--model": "m", "--tiles": "tiles.npy", "--out": "out.npy"},
    ("hilbert-ring", "plan"): {**TENSORS, "--spec": "spec.json", "--local": None},
    ("hilbert-ring", "cancel"): {"": ["j"]},
    ("hilbert-ring", "verify"): {**TENSORS, "--spec": "spec.json", "--out": "q.npy"},
    ("hilbert-ring", "completion"): {"": ["bash"]},
}
BY_PYTHON = {"bench", "draw", "slide"}  # commands of the package
# Arguments of options that need others beside them.
TLS = {"": ["status"], "--tls": None}
STREAM = {"--stream": None, "--qkv": "rows.raw", "--tokens": "8", "--heads": "1", "--head-dim": "8",
          "--dtype": "float32", "--spec": "spec.json", "--out": "out.npy"}
BESIDE = {**{("attend", option): STREAM for option in ("--qkv", "--epoch", "--follow")},
          **{("hilbert-ring", option): TLS for option in ("--ca", "--server-name")},
          ("hilbert-ring", "--cert"): {**TLS, "--key": "q.npy"}, ("hilbert-ring", "--key"): {**TLS, "--cert": "q.npy"}}


def environment():
    """Returns an environment without the caller's settings, in which unknown host names fail at once."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HILBERT_RING_")}
    return {**kept, "PATH": "/usr/bin:/bin", "RES_OPTIONS": "timeout:1 attempts:1"}


def helped(command):
    done = subprocess.run([PROGRAMS / command[0], *command[1:], "--help"], capture_output=True, text=True, timeout=60,
                          env={**environment(), "COLUMNS": "400"}, check=True)
    return done.stdout


def commands(command):
    """Yields the command and its subcommands, each with its help."""
    text = helped(command)
    yield command, text
    listed = re.search(r"\nSubcommands:\n(.*?)(?:\n\n|$)", text, re.S)
    for name in re.findall(r"^  (\S+)", listed[1], re.M) if listed else []:
        if name not in BY_PYTHON:
            yield from commands((*command, name))


def options(text):
    shown = [re.split(r"\s{2,}", line)[0] for line in re.findall(r"^  (-.*)$", text, re.M)]
    return {name for line in shown for name in
            re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", re.split(r"Needs:|Excludes:", line)[0])} - {"--help"}


class OddValues(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        cls.folder = Path(tempfile.mkdtemp(prefix="hilbert-ring-odd-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        inputs = cls.folder / "inputs"
        inputs.mkdir()
        rows = numpy.zeros((8, 1, 8), numpy.float32)
        numpy.save(inputs / "q.npy", rows)
        numpy.save(inputs / "tiles.npy", rows[:, 0])
        (inputs / "rows.raw").write_bytes(bytes(3 * rows.nbytes))
        (inputs / "spec.json").write_text(json.dumps(SPEC))
        (inputs / "jobs.jsonl").write_text(json.dumps({"q": "q.npy", "k": "q.npy", "v": "q.npy", "out": "out.npy"}))
        cls.taken = socket.socket()
        cls.taken.bind(("127.0.0.1", 0))
        cls.taken.listen()
        cls.addClassCleanup(cls.taken.close)
        cls.port = cls.taken.getsockname()[1]
        server = grpc.server(futures.ThreadPoolExecutor(1))  # without methods
        cls.server = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        cls.addClassCleanup(lambda: server.stop(None).wait())
        cls.runs = 0

    def place(self):
        place = Path(tempfile.mkdtemp(dir=self.folder))
        for path in (self.folder / "inputs").iterdir():
            (place / path.name).symlink_to(path)
        (place / FOLDER).mkdir()
        (place / FOLDER / "kept").touch()
        with socket.socket(socket.AF_UNIX) as bound:
            here = os.open(place, os.O_PATH)
            bound.bind(f"/proc/self/fd/{here}/{SOCKET}")
            os.close(here)
        return place

    def judge(self, words, place, code, errors):
        """Returns the fault of a run that has ended, in a list that may be empty."""
        faults = []
        if code < 0:
            faults.append(f"ended by {signal.Signals(-code).name}")
        if "Traceback" in errors:
            faults.append("ended by an exception")
        if not (place / FOLDER / "kept").exists() or not (place / SOCKET).is_socket():
            faults.append("removed a file of another owner")
        shutil.rmtree(place)
        shown = [word if len(word) < 100 else word[:100] + "..." for word in words]
        return [f"{shown!r}: {', '.join(faults)}: {errors.strip()[-300:]}"] if faults else []

    def run_program(self, words):
        place = self.place()
        with open(place / "errors", "w+b") as errors:
            process = subprocess.Popen([PROGRAMS / words[0], *words[1:]], cwd=place, env=environment(), stderr=errors,
                                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
            try:
                code = process.wait(SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                code = -signal.SIGALRM
            errors.seek(0)
            return self.judge(words, place, code, errors.read().decode("utf-8", "replace"))

    def base(self, command, option):
        if command[0] != "hilbert-ring":
            held = "--port" if command[0].endswith("worker") else "--grpc-port"
            ports = ["--port"] if command[0].endswith("worker") else ["--grpc-port", "--membership-port"]
            base = {**dict.fromkeys(ports, "0"), "--http-port": str(self.port)}
            if option == "--http-port":
                base[held] = str(self.port)
            if command[0].endswith("coordinator"):
                base["--spawn-workers"] = "0"
            return base
        base = dict(BESIDE.get((command[-1], option)) or BASES.get(command) or {})
        base["--server"] = self.server
        return base

    def lines(self, command, tried):
        """Yields a command line for each option and value."""
        for option in tried:
            base = self.base(command, option)
            base.pop(option, None)
            words = [*command[1:], *base.pop("", [])]
            words += [name if value is None else f"{name}={value}" for name, value in base.items()]
            yield from ([command[0], *words, f"{option}={value}"] for value in VALUES)
        # Odd values of a command's only word.
        if len(BASES.get(command, {}).get("", [])) == 1 and len(command) > 1:
            base = self.base(command, "")
            base.pop("")
            rest = [name if value is None else f"{name}={value}" for name, value in base.items()]
            yield from ([*command, *rest, "--", value] for value in VALUES)

    def test_no_option_ends_a_program_by_a_signal(self):
        found = [(command, options(text)) for program in ("hilbert-ring-coordinator", "hilbert-ring-worker", "hilbert-ring")
                 for command, text in commands((program,))]
        self.assertLessEqual(set(BASES), {command for command, _ in found})
        lines = [line for command, names in found for line in self.lines(command, names)]
        self.assertGreater(len(lines), 200 * len(VALUES))
        with futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            self.assertEqual([fault for faults in pool.map(self.run_program, lines) for fault in faults], [])


if __name__ == "__main__":
    unittest.main()
