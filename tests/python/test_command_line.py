"""draw, bench and slide: errors as JSON, the nearest names, and outputs that replace no input."""
import argparse
import json
import os
import re
import subprocess

import numpy as np
import pytest

import hilbert_ring
from hilbert_ring.__main__ import _parser, main
from hilbert_ring.local_service import find_program

SPEC = {"segments": [16], "dilations": [1], "tokens": 32, "heads": 2, "head_dim": 8}
PATTERN = ["--segments", "16", "--dilations", "1", "--tokens", "32"]


@pytest.fixture(name="shown")
def _shown(tmp_path):
    for name in ("token", "trace.json"):
        (tmp_path / name).write_text("secret")
    (tmp_path / "job.json").write_text(json.dumps(SPEC))
    return tmp_path


@pytest.mark.parametrize("line, told", [
    (["draw", "patern"], "unknown picture patern; the nearest known one is pattern"),
    (["bench", "swep"], "unknown benchmark swep; the nearest known one is sweep"),
    (["bench", "sweep", "--round", "3"], "unknown option --round; the nearest known one is --rounds"),
    (["draw", "pattern", "--segmets=16"], "unknown option --segmets; the nearest known one is --segments"),
    (["draw", "pattern"], "--out"),
    (["slide", "x"], "--tiles"),
    (["slide", "x", "y", "--tiles", "t", "--coords", "c"], "unexpected argument y"),
    (["draw", "pattern", "--mixing", "ls", "--out", "x"], "--mixing"),
    (["draw", "pattern", "--spec", "/nonexistent/x", "--out", "x"], "/nonexistent/x"),
])
def test_errors_are_json_where_results_are(capsys, line, told):
    code = main([*line, "--json"])
    printed = capsys.readouterr()
    (only,) = printed.err.splitlines()
    error = json.loads(only)["error"]
    assert code == (1 if "/nonexistent/x" in line else 2)
    assert error["code"] == ("NOT_FOUND" if code == 1 else "INVALID_ARGUMENT")
    assert told in error["message"]
    assert printed.out == ""
    main(line)
    assert f"hilbert-ring: {error['code']}: {error['message']}" in capsys.readouterr().err


def test_far_names_have_no_nearest(capsys):
    assert main(["draw", "xyzzyq"]) == 2
    assert "nearest" not in capsys.readouterr().err


@pytest.mark.parametrize("line, out", [
    (["draw", "pattern", "--spec", "job.json"], "job.json"),
    (["draw", "order", "--spec", "job.json"], "./job.json"),
    (["draw", "plan", "--spec", "job.json"], "link"),
    (["draw", "trace", "trace.json"], "trace.json"),
    (["draw", "plan", *PATTERN, "--server", "127.0.0.1:9", "--token-file", "token"], "token"),
])
def test_a_picture_replaces_no_input(capsys, shown, monkeypatch, line, out):
    monkeypatch.chdir(shown)
    os.symlink("job.json", "link")
    before = {path.name: path.read_bytes() for path in shown.iterdir()}
    assert main([*line, "--out", out]) == 2
    assert "is the same file as the input" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in shown.iterdir()} == before


def test_files_named_by_variables_are_inputs_too(capsys, shown, monkeypatch):
    monkeypatch.setenv("HILBERT_RING_TOKEN_FILE", str(shown / "sweep.json"))
    (shown / "sweep.json").write_text("secret")
    assert main(["bench", "sweep", "--out", str(shown), "--server", "127.0.0.1:9"]) == 2
    assert "the input --token-file" in capsys.readouterr().err
    assert (shown / "sweep.json").read_text() == "secret"


def test_a_picture_goes_to_stdout(capsys, shown, monkeypatch):
    monkeypatch.chdir(shown)
    assert main(["draw", "pattern", *PATTERN, "--out", "-"]) == 0
    assert capsys.readouterr().out.startswith("<svg")
    assert not (shown / "-").exists()


def test_an_array_replaces_neither_what_the_caller_shows_nor_a_device(shown):
    q = np.ones((16, 2, 8), "f4")
    options = {"segments": [16], "deadline": 0.2, "progress": False}
    os.mkfifo(shown / "pipe")
    with hilbert_ring.connect("127.0.0.1:9", token_file=shown / "token") as client:
        for more in ({"out": shown / "token"}, {"lse": shown / "token"}):
            with pytest.raises(hilbert_ring.InvalidArgumentError, match="the input token_file; nothing was written"):
                client.attend(q, q, q, **options, **more)
        with pytest.raises(hilbert_ring.InvalidArgumentError, match="no regular file"):
            client.attend(q, q, q, out=shown / "pipe", **options)
    assert (shown / "token").read_text() == "secret"
    assert (shown / "pipe").is_fifo()


def test_completion_has_the_options_of_the_packages_commands():
    script = subprocess.run([find_program("hilbert-ring"), "completion", "bash"], check=True, stdout=subprocess.PIPE,
                            text=True).stdout
    listed = {name: set(options.split()) for name, options in
              re.findall(r'^    (draw|bench|slide)\) options="([^"]*)"', script, re.MULTILINE)}
    everywhere = set(re.search(r'-W "(--help[^$]*)\$options"', script).group(1).split())
    for name, command in commands_of(_parser()).items():
        own = {option for parser in (command, *commands_of(command).values()) for action in parser._actions
               for option in action.option_strings if option.startswith("--")}
        assert listed[name] == own - everywhere


def commands_of(parser):
    found = [action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return found[0] if found else {}
