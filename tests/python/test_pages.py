"""Runs the pages' shell commands. page_blocks.py lists the marks of blocks."""
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import slide_files

import hilbert_ring
from client_rig import free_ports
from hilbert_ring import convert
from hilbert_ring.local_service import find_program
from page_blocks import LANGUAGES, RUN, ROOT, all_blocks, blocks

SECONDS = 300
CLI, TUTORIAL, ENCODER, SECURITY = "docs/cli.md", "docs/tutorial.md", "docs/encoder.md", "docs/security.md"
HOWTO = "docs/howto/"
CLUSTER, FILES, SLIDES = HOWTO + "cluster.md", HOWTO + "files_by_path.md", HOWTO + "slides.md"
SMALL_JOBS, STREAMS, TUNING = HOWTO + "small_jobs.md", HOWTO + "streams.md", HOWTO + "tuning.md"


def environment(server):
    path = [str(find_program("hilbert-ring").parent), str(Path(sys.executable).parent), "/usr/bin", "/bin"]
    return {**os.environ, "HILBERT_RING_SERVER": server, "HILBERT_RING_PYTHON": sys.executable, "PATH": ":".join(path)}


def run(line, folder, server):
    done = subprocess.run(line, cwd=folder, env=environment(server), capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, f"{line[-1]}\n{done.stdout}\n{done.stderr}"
    return done.stdout


# A quarter of the tokens of the pages' jobs.
SMALLER = {"65536": "16384", "65_536": "16_384", "256,256": "128,128", "256, 256": "128, 128", "20536": "5384",
           "44000": "10000"}


def run_block(block, folder, server):
    """Runs a block and returns its output."""
    code = block.code
    for written, small in SMALLER.items() if block.page in (CLI, TUTORIAL) else ():
        code = code.replace(written, small)
    if block.language == "python":
        return run([sys.executable, "-c", code.replace("localhost:8001", server)], folder, server)
    return run(["bash", "-e", "-o", "pipefail", "-c", code], folder, server)


def run_page(page, folder, server):
    """Runs the unchanged blocks of a page and returns their outputs."""
    return [run_block(block, folder, server) for block in blocks(page)
            if block.language == "python" or (block.language, block.tag) == ("sh", "run")]


def marked(page, tag):
    return [block for block in blocks(page) if block.tag == tag]


# The pages and marks of blocks that tests run. Every block with such a mark must be of one of these.
RAN = {(CLI, "run"), (TUTORIAL, "run"), (TUTORIAL, "service"), (ENCODER, "run"), (TUNING, "run"), (SECURITY, "run"),
       (SMALL_JOBS, "run=service"), (STREAMS, "run=service"),
       (CLUSTER, "run=elsewhere"), (FILES, "run=elsewhere"), (SLIDES, "run=elsewhere"), (SECURITY, "run=elsewhere")}


def test_every_block_says_its_language_and_a_shells_whether_it_is_run():
    for block in all_blocks():
        place = f"{block.page}:{block.line}"
        assert block.language in LANGUAGES, f"{place} has no language that is known: {block.language!r}"
        if block.language == "sh":
            assert block.tag in RUN or all(block.needs), f"{place} does not say whether a test runs it"
            assert block.needs or block.tag in RUN
        else:
            assert block.tag == "", place


def test_what_is_to_be_run_is_run():
    assert {(block.page, block.tag) for block in all_blocks() if block.language == "sh" and not block.needs} == RAN


def test_the_page_lists_the_needs_of_blocks():
    page = (ROOT / "docs/testing.md").read_text().split("## Commands in these pages\n")[1].split("\n## ")[0]
    named = re.findall(r"^\| `(\w+)` \|", page, re.M)
    assert len(named) == len(set(named))
    assert set(named) == {need for block in all_blocks() for need in block.needs}


def test_the_cpp_page_shows_the_example():
    shown = [block.code for block in blocks("docs/cpp.md")]
    for name in ("CMakeLists.txt", "attend.cc"):
        assert (ROOT / "examples/attend" / name).read_text() in shown


def test_the_tutorial(tmp_path):
    assert [block.code for block in marked(TUTORIAL, "service")] == ["hilbert-ring-coordinator --spawn-workers=2\n"]
    service = hilbert_ring.LocalService(2)
    try:
        service.start()
        said = run_page(TUTORIAL, tmp_path, service.server)
    finally:
        service.stop()
    assert len(said) > 8 and said[0].count(" up ") == 2
    assert any(words.rstrip().endswith("ok") or "\nok" in words for words in said)
    for name in ("out", "image_out", "slide_out", "packed_out"):
        assert (tmp_path / f"{name}.npy").stat().st_size > 1e6
    assert (tmp_path / "trace.svg").exists() and (tmp_path / "report.json").exists()


def test_the_how_to_pages(tmp_path):
    for page in sorted((ROOT / HOWTO).glob("*.md")):
        run_page(page.relative_to(ROOT).as_posix(), tmp_path, "")   # each command starts the service that it needs
    assert (tmp_path / "plan.json").stat().st_size > 1000


def test_a_stream_and_many_small_jobs(tmp_path):
    found = [*marked(STREAMS, "run=service"), *marked(SMALL_JOBS, "run=service")]
    assert len(found) == 2
    with hilbert_ring.local(workers=1) as client:
        for block in found:
            run_block(block, tmp_path, client.server)
    assert (tmp_path / "out.raw").stat().st_size == 20 * 500 * 8 * 64 * 4
    assert [np.load(tmp_path / f"out{i}.npy").shape for i in (0, 99)] == [(64, 8, 64), (163, 8, 64)]


def random_model(folder, embed_dim=32, heads=2):
    """Writes a small encoder in the form of convert, and tiles and coordinates beside its folder."""
    drawn = np.random.default_rng(1)
    config = {"architecture": "longnet_encoder", "input_dim": 16, "embed_dim": embed_dim, "heads": heads, "ffn_dim": 64,
              "layers": 2, "segments": [16, 64], "dilations": [1, 2], "layer_norm_eps": 1e-5, "norm_eps": 1e-6,
              "class_token": True, "output_norm": True,
              "position": {"kind": "sincos_2d", "tile_size": 256, "grid": 100}}
    convert.write_model(folder / "models/slide_encoder", config, {
        name: convert.Tensor("F32", shape, (drawn.standard_normal(shape, np.float32) / 8).tobytes())
        for name, shape in convert.weight_shapes(config).items()})
    tiles, coords = drawn.standard_normal((90, 16), np.float32), drawn.integers(0, 25600, (90, 2))
    np.save(folder / "tiles.npy", tiles)
    np.save(folder / "coords.npy", coords)
    return tiles, coords


def test_the_encoders_page(tmp_path):
    tiles, coords = random_model(tmp_path)
    with hilbert_ring.local(workers=2, model_dir=tmp_path / "models") as client:
        commands = marked(ENCODER, "run")
        assert any("hilbert-ring encode" in block.code for block in commands)
        for block in commands:
            run_block(block, tmp_path, client.server)
        assert np.load(tmp_path / "e.npy").shape == (1, 32)
        assert np.load(tmp_path / "m.npy").shape == (91,)
        pytest.importorskip("h5py", reason="h5py is not installed")
        slide_files.trident(tmp_path, tiles, coords // 256)
        opening = f"import hilbert_ring\nclient = hilbert_ring.connect({client.server!r})\n"
        for block in blocks(ENCODER):
            if block.language == "python":
                run([sys.executable, "-c", opening + block.code], tmp_path, client.server)


def test_the_first_job_of_the_command_line(tmp_path):
    found = marked(CLI, "run")
    assert len(found) == 2 and "hilbert-ring verify" in found[1].code
    service = hilbert_ring.LocalService(2)
    try:
        service.start()
        said = [run_block(block, tmp_path, service.server) for block in found]
    finally:
        service.stop()
    assert said[1].rstrip().endswith("ok")


def run_elsewhere(block, folder, waits=True):
    """Runs a block that starts processes in the background, with the test's own ports and folders.

    waits: the first foreground command waits until the service is ready.
    """
    ports = dict(zip(("8001", "8002", "8003", "8101", "8102"), map(str, free_ports(5))))
    code = block.code.replace("\\\n", " ").replace("COORDINATOR", "localhost").replace("ADDRESS", "127.0.0.1")
    code = code.replace("/srv/tensors", str(folder / "tensors"))
    for written, free in ports.items():
        code = re.sub(rf"\b{written}\b", free, code)
    lines = code.splitlines()
    for at, line in enumerate(lines):
        if line.startswith("hilbert-ring-coordinator "):
            assert line.endswith("&"), f"{block.page}:{block.line} waits for the coordinator's end"
            lines[at] = (f"{line[:-1]} --grpc-host=127.0.0.1 --http-host=127.0.0.1 --membership-host=127.0.0.1 "
                         f"--grpc-port={ports['8001']} --http-port={ports['8002']} "
                         f"--membership-port={ports['8003']} --ready-file=ready.json &")
        elif line.startswith("hilbert-ring-worker ") and "--port" not in line:
            lines[at] = f"{line[:-1]} --port={ports['8101']} &"
    first = next(at for at, line in enumerate(lines) if line.startswith("hilbert-ring "))
    if waits:
        lines.insert(first, "for i in $(seq 600); do [ -s ready.json ] && break; sleep 0.1; done; [ -s ready.json ]")
    script = "\n".join(["trap 'kill $(jobs -p); wait' EXIT", *lines])
    return run(["bash", "-e", "-c", script], folder, f"127.0.0.1:{ports['8001']}")


def elsewhere(page, words):
    (found,) = [block for block in marked(page, "run=elsewhere") if words in block.code]
    return found


def test_a_cluster_by_hand(tmp_path):
    assert run_elsewhere(elsewhere(CLUSTER, "join.token"), tmp_path).count(" up ") == 2


def test_files_by_path(tmp_path):
    (tmp_path / "tensors").mkdir()
    for name in "qkv":
        np.save(tmp_path / "tensors" / f"{name}.npy", np.ones((66000, 2, 8), np.float32))
    run_elsewhere(elsewhere(FILES, "--data-root"), tmp_path, waits=False)
    assert np.allclose(np.load(tmp_path / "tensors/out.npy"), 1)


def test_slides_to_embeddings(tmp_path):
    random_model(tmp_path)
    run_elsewhere(elsewhere(SLIDES, "--model-dir"), tmp_path)
    assert np.load(tmp_path / "e.npy").shape == (1, 32) and np.load(tmp_path / "m.npy").shape == (91,)


def test_a_checkpoint_is_converted(tmp_path):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: ./dev python-check")
    found = [block for block in all_blocks() if block.needs == ["torch"]]
    assert {block.page for block in found} == {SLIDES}
    random_model(tmp_path, embed_dim=128, heads=16)  # the heads that published ones have
    header, weights = (tmp_path / "models/slide_encoder/model.safetensors"), {}
    raw = header.read_bytes()
    start = 8 + int.from_bytes(raw[:8], "little")
    for name, entry in json.loads(raw[8:start]).items():
        if name != "__metadata__":
            begin, end = (start + offset for offset in entry["data_offsets"])
            weights[name] = torch.from_numpy(np.frombuffer(raw[begin:end], np.float32).reshape(entry["shape"]).copy())
    torch.save(weights, tmp_path / "slide_encoder.pth")
    for block in found:
        shutil.rmtree(tmp_path / "models")
        (tmp_path / "models").mkdir()
        run_block(block, tmp_path, "")
        assert (tmp_path / "models/slide_encoder/config.json").exists()


@pytest.fixture
def certified(tmp_path):
    """A folder with the page's certificates."""
    (block,) = marked(SECURITY, "run")
    run_block(block, tmp_path, "")
    return tmp_path


def test_a_secured_service(certified):
    assert run_elsewhere(elsewhere(SECURITY, "cat > tokens"), certified).count(" up ") == 2


def test_a_secured_cluster(certified):
    token = "a-token-of-this-test"
    (certified / "tokens").write_text(json.dumps({"name": "lab", "role": "submit", "token": token}) + "\n")
    (certified / "token").write_text(token + "\n")
    assert run_elsewhere(elsewhere(SECURITY, "--tls-peer-name"), certified).count(" up ") == 1
