"""The commands of the tutorial, the how-to page, the encoders' page and the README's first job, as they stand there.

A service has free ports, which stand in for the pages' own. Blocks that are marked otherwise are
not run: "once" installs and builds.
"""
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import hilbert_ring
from hilbert_ring import convert
from hilbert_ring.local_service import find_program

DOCS = Path(__file__).resolve().parents[2] / "docs"
BLOCK = re.compile(r"(?:<!-- ([a-z ]+) -->\n)?```(sh|python)\n(.*?)```", re.S)
MARKS = {"": "run", "once": "the reader's to run", "service": "the service that the test starts",
         "cluster": "run with ports that are free", "with a service": "run with one that the test starts"}
SECONDS = 300


def blocks(page):
    return BLOCK.findall((DOCS / page).read_text())


def environment(server):
    path = [str(find_program("hilbert-ring").parent), str(Path(sys.executable).parent), "/usr/bin",
            "/bin"]
    return {**os.environ, "HILBERT_RING_SERVER": server, "HILBERT_RING_PYTHON": sys.executable, "PATH": ":".join(path)}


def run(line, folder, server):
    done = subprocess.run(line, cwd=folder, env=environment(server), capture_output=True, text=True,
                          timeout=SECONDS)
    assert done.returncode == 0, f"{line[-1]}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def run_page(page, folder, server):
    """Runs the blocks that are to be run: what each printed."""
    said = []
    for mark, language, code in blocks(page):
        if mark:
            continue
        if language == "sh":
            said.append(run(["bash", "-e", "-o", "pipefail", "-c", code], folder, server))
        else:
            said.append(run([sys.executable, "-c", code.replace("localhost:8001", server)],
                            folder, server))
    return said


@pytest.mark.parametrize("page, least", [("tutorial.md", 11), ("howto.md", 9)])
def test_no_block_of_commands_escapes(page, least):
    text = (DOCS / page).read_text()
    assert len(blocks(page)) == text.count("```") // 2 >= least
    assert {mark for mark, _, _ in blocks(page)} <= set(MARKS)
    # Left to the reader: the build and the shell's paths to it, or what needs the reader's own paths and ports.
    assert sum(mark == "once" for mark, _, _ in blocks(page)) <= 2


def test_the_tutorial(tmp_path):
    command = [code for mark, _, code in blocks("tutorial.md") if mark == "service"]
    assert command == ["hilbert-ring-coordinator --spawn-workers=2\n"]
    service = hilbert_ring.LocalService(2)
    try:
        service.start()
        said = run_page("tutorial.md", tmp_path, service.server)
    finally:
        service.stop()
    assert said[0].count(" up ") == 2
    assert any(words.rstrip().endswith("ok") or "\nok" in words for words in said)
    for name in ("out", "image_out", "slide_out", "packed_out"):
        assert (tmp_path / f"{name}.npy").stat().st_size > 1e6
    assert (tmp_path / "trace.svg").exists() and (tmp_path / "report.json").exists()


def test_the_how_to_page(tmp_path):
    run_page("howto.md", tmp_path, "")   # each command starts what it needs
    for name in ("ablate", "project", "load", "sweep", "order", "dilation"):
        assert {f"{name}.{kind}" for kind in ("md", "json", "svg")} <= set(
            os.listdir(tmp_path / "figures"))
    assert (tmp_path / "plan.json").stat().st_size > 1000


def test_a_stream_of_the_how_to_page(tmp_path):
    (code,) = [code for mark, _, code in blocks("howto.md") if mark == "with a service"]
    with hilbert_ring.local(workers=1) as client:
        run(["bash", "-e", "-o", "pipefail", "-c", code], tmp_path, client.server)
    assert (tmp_path / "out.raw").stat().st_size == 20 * 500 * 8 * 64 * 4


def test_the_encoders_page(tmp_path):
    drawn = np.random.default_rng(1)
    config = {"architecture": "longnet_encoder", "input_dim": 16, "embed_dim": 32, "heads": 2, "ffn_dim": 64,
              "layers": 2, "segments": [16, 64], "dilations": [1, 2], "layer_norm_eps": 1e-5, "norm_eps": 1e-6,
              "class_token": True, "output_norm": True,
              "position": {"kind": "sincos_2d", "tile_size": 256, "grid": 100}}
    convert.write_model(tmp_path / "models/slide_encoder", config, {
        name: convert.Tensor("F32", shape, (drawn.standard_normal(shape, np.float32) / 8).tobytes())
        for name, shape in convert.weight_shapes(config).items()})
    tiles, coords = drawn.standard_normal((90, 16), np.float32), drawn.integers(0, 25600, (90, 2))
    np.save(tmp_path / "tiles.npy", tiles)
    np.save(tmp_path / "coords.npy", coords)
    with hilbert_ring.local(workers=2, model_dir=tmp_path / "models") as client:
        commands = [code for mark, language, code in blocks("encoder.md")
                    if language == "sh" and not mark]
        assert any("hilbert-ring encode" in code for code in commands)
        for code in commands:
            run(["bash", "-e", "-c", code], tmp_path, client.server)
        assert np.load(tmp_path / "e.npy").shape == (1, 32)
        assert np.load(tmp_path / "m.npy").shape == (91,)
        h5py = pytest.importorskip("h5py", reason="h5py is not installed")
        with h5py.File(tmp_path / "slide.h5", "w") as file:
            file["features"], file["coords"] = tiles, coords
        opening = f"import hilbert_ring\nclient = hilbert_ring.connect({client.server!r})\n"
        for _, language, code in blocks("encoder.md"):
            if language == "python":
                run([sys.executable, "-c", opening + code], tmp_path, client.server)


def test_the_readmes_first_job(tmp_path):
    page = (DOCS.parent / "README.md").read_text()
    section = page.split("## Submit a job\n")[1].split("\n## ")[0]
    codes = re.findall(r"```\n(.*?)```", section, re.S)
    assert len(codes) == 2 and "hilbert-ring verify" in codes[1]
    service = hilbert_ring.LocalService(2)
    try:
        service.start()
        said = [run(["bash", "-e", "-c", code], tmp_path, service.server) for code in codes]
    finally:
        service.stop()
    assert said[1].rstrip().endswith("ok")


def test_a_cluster_by_hand(tmp_path):
    code = next(code for mark, _, code in blocks("howto.md") if mark == "cluster")
    ports = dict(zip(("8003", "8101", "8102"), free_ports(3)))
    grpc, http = free_ports(2)
    for written, free in ports.items():
        code = code.replace(written, str(free))
    code = code.replace("--spawn-workers=0", "--spawn-workers=0 --grpc-host=127.0.0.1 --http-host="
                        f"127.0.0.1 --grpc-port={grpc} --http-port={http} --membership-host="
                        f"127.0.0.1 --membership-port={ports['8003']} --ready-file=ready.json")
    before, status = code.rsplit("\n", 2)[:2]
    assert status == "hilbert-ring status"
    # `status` is asked again until the service has its workers.
    script = (f"trap 'kill $(jobs -p); wait' EXIT\n{before}\nfor i in $(seq 600); do\n"
              f"  if [ -s ready.json ]; then {status}; exit 0; fi\n  sleep 0.1\ndone\nexit 1\n")
    said = run(["bash", "-c", script], tmp_path, f"127.0.0.1:{grpc}")
    assert said.count(" up ") == 2


def free_ports(number):
    import socket
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
