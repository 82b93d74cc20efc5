"""draw, bench and slide: errors as JSON, the nearest names, and outputs that replace no input."""
import argparse
import errno
import json
import os
import re
import signal
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import hilbert_ring
from client_rig import program
from hilbert_ring.__main__ import _parser, main
from hilbert_ring._files import FileOutput

SPEC = {"segments": [16], "dilations": [1], "tokens": 32, "heads": 2, "head_dim": 8}
PATTERN = ["--segments", "16", "--dilations", "1", "--tokens", "32"]


@pytest.fixture(name="shown")
def _shown(tmp_path):
    for name in ("token", "trace.json"):
        (tmp_path / name).write_text("secret")
    (tmp_path / "job.json").write_text(json.dumps(SPEC))
    return tmp_path


@pytest.mark.parametrize("line, expected", [
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
def test_errors_are_json_where_results_are(capsys, line, expected):
    code = main([*line, "--json"])
    printed = capsys.readouterr()
    (only,) = printed.err.splitlines()
    error = json.loads(only)["error"]
    assert code == (1 if "/nonexistent/x" in line else 2)
    assert error["code"] == ("NOT_FOUND" if code == 1 else "INVALID_ARGUMENT")
    assert expected in error["message"]
    assert printed.out == ""
    main(line)
    assert f"hilbert-ring: {error['code']}: {error['message']}" in capsys.readouterr().err


def test_a_switch_in_the_environment_is_true_or_false(capsys, monkeypatch):
    monkeypatch.setenv("HILBERT_RING_TLS", "maybe")
    assert main(["draw", "plan", *PATTERN, "--out", "x", "--server", "127.0.0.1:1"]) == 2
    assert "HILBERT_RING_TLS is maybe, must be true or false" in capsys.readouterr().err


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
    os.symlink("/dev/stdout", "link")
    for out in ("-", "/dev/stdout", "link"):
        assert main(["draw", "pattern", *PATTERN, "--out", out]) == 0
        printed = capsys.readouterr().out
        assert printed.startswith("<svg") and printed.rstrip().endswith("</svg>")
    assert not (shown / "-").exists()


def test_a_picture_replaces_a_file_as_a_whole(shown):
    (shown / "old.svg").write_text("old")
    os.link(shown / "old.svg", shown / "kept.svg")
    os.symlink("old.svg", shown / "latest.svg")
    assert main(["draw", "pattern", *PATTERN, "--out", str(shown / "latest.svg")]) == 0
    assert (shown / "latest.svg").is_symlink()
    assert (shown / "old.svg").read_text().startswith("<svg")
    assert (shown / "kept.svg").read_text() == "old"


@pytest.fixture(name="slide")
def _slide(tmp_path, tmp_path_factory, monkeypatch):
    """A command line for a slide in another folder."""
    file = tmp_path_factory.mktemp("slide") / "slide.npz"
    np.savez(file, features=np.ones((4, 8), "f4"), coords=np.arange(8).reshape(4, 2) * 512, patch_size_level0=512)
    monkeypatch.chdir(tmp_path)
    return ["slide", str(file), "--tiles", "tiles.npy", "--coords", "coords.npy"]


@pytest.mark.parametrize("mode", [0o600, 0o640, None])
def test_outputs_keep_the_permissions_of_what_they_replace(slide, mode):
    before = os.umask(0o022)
    try:
        for name in ("tiles.npy", "coords.npy", "array.npy") if mode else ():
            Path(name).touch()
            os.chmod(name, mode)
        assert main(slide) == 0
        output = FileOutput("array.npy", (2, 3), np.dtype("f4"))
        output.bytes[:] = 0
        output.result()
        assert [stat.S_IMODE(os.stat(name).st_mode) for name in ("tiles.npy", "coords.npy", "array.npy")] == \
            [mode or 0o644] * 3
    finally:
        os.umask(before)


def test_the_name_of_an_output_may_be_as_long_as_the_system_takes(slide, capsys):
    name = "n" * 251 + ".npy"
    slide[3] = name
    assert main(slide) == 0 and (np.load(name) == 1).all()
    slide[3] = "n" + name
    assert main(slide) == 2 and "cannot write: File name too long" in capsys.readouterr().err


@pytest.mark.parametrize("name, why", [("none/x.npy", "No such file or directory"), ("file/x.npy", "Not a directory"),
                                       ("file/under/x.npy", "No such file or directory")])
def test_an_output_whose_folder_is_none_is_named(slide, capsys, name, why):
    Path("file").touch()
    slide[3] = name
    assert main(slide) == 1 and f"{name}: cannot write: {why}" in capsys.readouterr().err
    with pytest.raises(hilbert_ring.NotFoundError, match=f"{name}: cannot write: {why}"):
        FileOutput(name, (2, 3), np.dtype("f4"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_leaves_no_pending_file(slide, number):
    """The signal comes while a pending file is written."""
    program = ("import os, runpy, numpy; numpy.save = lambda *_: os.kill(os.getpid(), {}); "
               "runpy.run_module('hilbert_ring', run_name='__main__', alter_sys=True)").format(int(number))
    done = subprocess.run([sys.executable, "-c", program, *slide], timeout=120, check=False)
    assert (done.returncode, os.listdir()) == (128 + number, [])


def test_a_slide_that_cannot_be_written_replaces_nothing(slide, tmp_path, monkeypatch):
    (tmp_path / "tiles.npy").write_text("old")

    def full(descriptor):
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "fsync", full)
    assert main(slide) == 1
    assert os.listdir() == ["tiles.npy"] and (tmp_path / "tiles.npy").read_text() == "old"


def test_completion_has_the_options_of_the_packages_commands():
    script = program("completion", "bash").stdout
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
