"""Programs know every option of the commands in all pages, including commands that no test runs."""
import contextlib
import io
import re
import shlex
import subprocess
from functools import lru_cache
from pathlib import Path

import pytest

from hilbert_ring.__main__ import _parser
from hilbert_ring.local_service import find_program
from page_blocks import PAGES, ROOT, all_blocks

PROGRAM = re.compile(r"hilbert-ring(-coordinator|-worker)?$")
ENDS = {"&", "&&", "|", ";", ">", "2>", "||"}


@lru_cache(maxsize=None)
def options(*command):
    """Returns the options of a program or its command. The package's own commands run in this process."""
    if command[1:2] and command[1] in ("bench", "draw", "slide"):
        with pytest.raises(SystemExit), contextlib.redirect_stdout(io.StringIO()) as said:
            _parser().parse_args([*command[1:], "--help"])
        return set(re.findall(r"--([a-z][a-z0-9-]*)", said.getvalue()))
    done = subprocess.run([find_program(command[0]), *command[1:], "--help"], capture_output=True,
                          text=True, timeout=60, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return set(re.findall(r"--([a-z][a-z0-9-]*)", done.stdout))


def shells():
    """Yields a page's name and its shell code, with each command in one line."""
    return [(Path(block.page).name, block.code.replace("\\\n", " ")) for block in all_blocks() if block.language == "sh"]


def in_text():
    """Yields a page's name and the commands within its sentences and tables."""
    found = []
    for page in PAGES:
        outside = re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.S | re.M)
        found += [(page.name, code.replace("\n", " ").replace("\\|", "|"))
                  for code in re.findall(r"`((?:\w+=\S+ )*hilbert-ring(?:-coordinator|-worker)? [^`]*)`", outside)]
    return found


def commands(code):
    for line in code.splitlines():
        try:
            words = shlex.split(line, comments=True)
        except ValueError:  # a quote over several lines
            continue
        if words[:1] in (["helm"], ["kubectl"]):  # names of charts and objects
            continue
        for place, word in enumerate(words):
            if not PROGRAM.fullmatch(word.rsplit("/", 1)[-1]):
                continue
            end = next((i for i in range(place + 1, len(words)) if words[i] in ENDS), len(words))
            yield [word.rsplit("/", 1)[-1], *words[place + 1:end]]


def shown():
    return [(page, words) for page, code in [*shells(), *in_text()] for words in commands(code)]


def test_pages_show_commands():
    assert len(shown()) > 60 and len(in_text()) > 25
    assert {"security.md", "deploy.md", "cli.md"} <= {page for page, _ in shown()}


@pytest.mark.parametrize("page, words", shown(), ids=lambda value: value if isinstance(value, str)
                         else " ".join(value)[:60])
def test_programs_know_every_option(page, words):
    given = [word[2:].split("=")[0] for word in words[1:] if word.startswith("--")]
    program, rest = words[0], [word for word in words[1:] if not word.startswith("-")]
    known = options(program)
    if program == "hilbert-ring" and rest and re.fullmatch("[a-z][a-z-]*", rest[0]):
        command = rest[:2] if rest[0] in ("bench", "draw") else rest[:1]
        known = known | options(program, *command)
    assert not {flag for flag in given if not {flag, flag.removeprefix("no-")} & known}, words


def test_the_page_has_every_command():
    table = (ROOT / "docs/cli.md").read_text().split("| command | what it does |\n")[1].split("\n\n")[0]
    named = {name for row in table.splitlines()[1:] for name in re.findall(r"`([a-z-]+)[^`]*`", row.split("|")[1])}
    listed = subprocess.run([find_program("hilbert-ring"), "--help"], capture_output=True, text=True, check=True,
                            timeout=60).stdout.split("Subcommands:\n")[1].split("\n\n")[0]
    assert named == set(re.findall(r"^  ([a-z-]+) ", listed, re.M))


def dev_help():
    """Returns the text of ./dev help about each command, with its usage."""
    text = subprocess.run([ROOT / "dev", "help"], capture_output=True, text=True, timeout=60, check=True).stdout
    entries = re.split(r"\n  (?=[a-z])", text)
    found = {}
    for entry in entries[1:]:
        found.setdefault(entry.split()[0], []).append(entry)
    return {command: "\n".join(parts) for command, parts in found.items()}


def dev_errors(command, words):
    """Returns the words of a command that ./dev help does not list."""
    listed = dev_help().get(command)
    if listed is None:
        return f"./dev {command}"
    unknown = [word for word in words if word.startswith("--") and word.split("=")[0] not in listed]
    return f"./dev {command} {unknown}" if unknown and "ARGS" not in listed else ""


def test_dev_knows_its_commands():
    for page in PAGES:
        for command in re.findall(r"(?:^|`|\s)\./dev ([a-z][a-z-]*)", page.read_text(), re.M):
            assert dev_errors(command, []) == "", page.name
    found = 0
    for page, code in shells():
        for line in code.splitlines():
            words = shlex.split(line, comments=True) if "./dev" in line else []
            for at, word in enumerate(words):
                if word == "./dev":
                    end = next((i for i in range(at, len(words)) if words[i] in ENDS), len(words))
                    assert dev_errors(words[at + 1], words[at + 2:end]) == "", page
                    found += 1
    assert found > 8
