"""Commands that pages show and no test runs (other hosts, containers, certificates): their programs
know every option of them."""
import os
import re
import shlex
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

import pytest

from hilbert_ring.local_service import find_program

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")),
         ROOT / "deploy/helm/hilbert-ring/README.md", ROOT / "client/python/README.md"]
PROGRAM = re.compile(r"hilbert-ring(-coordinator|-worker)?$")
ENDS = {"&", "&&", "|", ";", ">", "2>", "||"}


@lru_cache(maxsize=None)
def options(*command):
    """Options that a program, or a command of it, takes."""
    done = subprocess.run([find_program(command[0]), *command[1:], "--help"], capture_output=True,
                          text=True, timeout=60, check=False,
                          env={**os.environ, "HILBERT_RING_PYTHON": sys.executable})
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return set(re.findall(r"--([a-z][a-z0-9-]*)", done.stdout))


def fences(page):
    """Code that is a shell's, as a page has it."""
    for language, code in re.findall(r"^ *```(\w*)\n(.*?)^ *```", page.read_text(), re.S | re.M):
        if language in ("", "sh", "bash"):
            yield re.sub(r"\\\n", " ", code)


def commands(code):
    """Words of each command of the service's programs."""
    for line in code.splitlines():
        try:
            words = shlex.split(line, comments=True)
        except ValueError:  # a quote that goes on over lines
            continue
        if words[:1] in (["helm"], ["kubectl"]):  # names of charts and objects
            continue
        for place, word in enumerate(words):
            if not PROGRAM.fullmatch(word.rsplit("/", 1)[-1]):
                continue
            end = next((i for i in range(place + 1, len(words)) if words[i] in ENDS), len(words))
            yield [word.rsplit("/", 1)[-1], *words[place + 1:end]]


def shown():
    return [(page.name, words) for page in PAGES if page.exists() for code in fences(page)
            for words in commands(code)]


def test_pages_show_commands():
    assert len(shown()) > 30
    assert {"security.md", "deploy.md", "README.md"} <= {page for page, _ in shown()}


def test_what_counts_as_a_command():
    (found,) = commands("sudo /usr/bin/hilbert-ring status --server=x --json | grep up  # --no")
    assert found == ["hilbert-ring", "status", "--server=x", "--json"]
    assert not list(commands("apt install ./hilbert-ring-server_*.deb\nsystemctl start hilbert-ring-worker@8101"))


@pytest.mark.parametrize("page, words", shown(), ids=lambda value: value if isinstance(value, str)
                         else " ".join(value)[:60])
def test_programs_know_every_option(page, words):
    given = [word[2:].split("=")[0] for word in words[1:] if word.startswith("--")]
    program, rest = words[0], [word for word in words[1:] if not word.startswith("-")]
    known = options(program)
    if program == "hilbert-ring" and rest and re.fullmatch("[a-z]+", rest[0]):
        command = rest[:2] if rest[0] in ("bench", "draw") else rest[:1]
        known = known | options(program, *command)
    assert not {flag for flag in given if not {flag, flag.removeprefix("no-")} & known}, words


def test_dev_knows_its_commands():
    script = (ROOT / "dev").read_text()
    known = set(re.findall(r"^  ([a-z-]+)(?: \|[^)]*)?\) ", script, re.M)) | {"help"}
    for page in PAGES:
        if not page.exists():
            continue
        text = page.read_text()
        for command in re.findall(r"(?:^|`|\s)\./dev ([a-z][a-z-]*)", text, re.M):
            assert command in known, f"{page.name}: ./dev {command}"
