"""Full disks and shortened files are errors, not signals. Each case runs in a process of its own."""
import os
import subprocess
import sys

import numpy as np
import pytest

import golden_cases

FOLDER = os.path.dirname(__file__)
MODELS = golden_cases.FOLDER.parent / "encoder_cases"
SHAPE = (16_384, 4, 16)  # 4 MiB of float32


def run(program, *before):
    """Returns the lines that a program prints, one for each case."""
    done = subprocess.run([*before, sys.executable, "-c", f"import sys; sys.path[:0] = {[FOLDER, *sys.path]!r}\n"
                           + program], capture_output=True, text=True, timeout=120, check=False)
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip(f"no namespace of mounts: {done.stderr.strip()}")
    assert done.returncode == 0, (done.returncode, done.stderr)
    return done.stdout.splitlines()


FULL = """
import os, numpy, hilbert_ring, asyncio
os.chdir({disk!r})
values = numpy.ones({shape!r}, "f4")
mapped = numpy.lib.format.open_memmap("mapped.npy", "w+", "f4", {shape!r})

def outcome(call):
    try:
        call()
        print("written")
    except hilbert_ring.HilbertRingError as error:
        print(error)

def awaited(**outputs):
    async def run():
        async with hilbert_ring.aio.connect("127.0.0.1:1") as client:
            await client.attend(values, values, values, segments=[64], by_reference="never", progress=False, **outputs)
    asyncio.run(run())

with hilbert_ring.connect("127.0.0.1:1") as client:
    job = dict(q=values[:2048], k=values[:2048], v=values[:2048])
    for outputs in {outputs}:
        outcome(lambda: client.attend(values, values, values, segments=[64], by_reference="never", progress=False,
                                      deadline=1, **outputs))
    outcome(lambda: awaited(out="out.npy"))
    for out in mapped[2048:4096], mapped[:2]:
        few = {{name: rows[:len(out)] for name, rows in job.items()}}
        (result,) = client.attend_many([{{**few, "out": out}}], segments=[64], outage_timeout=0.1)
        print(result)
print(sorted(os.listdir()))
"""


def test_outputs_on_a_disk_without_room(tmp_path):
    """On a tmpfs of 128 KiB in its own mount namespace, no row is sent and no file remains."""
    mount = f"mount -t tmpfs -o size=128k none {tmp_path} || exit 77; exec \"$@\""
    outputs = '[dict(out="out.npy"), dict(out=values.copy(), lse="lse.npy"), dict(out=mapped)]'
    lines = run(FULL.format(disk=str(tmp_path), shape=SHAPE, outputs=outputs),
                "unshare", "--mount", "--map-root-user", "--user", "sh", "-c", mount, "sh")
    size = 4 * int(np.prod(SHAPE))
    for line, name in zip(lines, ("out.npy", "lse.npy", "mapped.npy", "out.npy", "mapped.npy")):
        assert line.startswith("RESOURCE_EXHAUSTED: ") and f"{tmp_path}/{name}: cannot create" in line, line
        assert " are free): No space left on device" in line
    assert f"its full size of {size} bytes" in lines[0]
    assert lines[5].startswith("UNAVAILABLE") and lines[6:] == ["['mapped.npy']"]  # few rows find room


SHRUNK = """
import os, numpy, hilbert_ring, asyncio
os.chdir({folder!r})
SHAPE = {shape!r}
values = numpy.ones(SHAPE, "f4")
tiles = numpy.ones((60_000, 24), "f4")
coords = numpy.stack(numpy.divmod(numpy.arange(60_000), 250), 1) * 100.0

def lay():
    numpy.save("order.npy", numpy.ones((SHAPE[0], 2), "i4"))
    for name in "qkv":
        numpy.save(name + ".npy", values)
    numpy.save("tiles.npy", tiles)
    numpy.save("coords.npy", coords)

def cut(name, size):
    def when(progress):
        if progress.admitted:
            os.truncate(name, size)
    return when

def outcome(call):
    try:
        print(type(call()).__name__)
    except hilbert_ring.DataLossError as error:
        print(error)

common = dict(segments=[64], by_reference="never", chunk_bytes=4096)
def attend(q="q.npy", k="k.npy", v="v.npy", progress=cut("q.npy", 8192), **more):
    return client.attend(q, k, v, progress=progress, **common, **more)

async def awaited():
    async with hilbert_ring.aio.connect({server!r}) as client:
        return await client.attend("q.npy", "k.npy", "v.npy", progress=cut("q.npy", 8192), **common)

def mapped(name="q.npy"):
    return numpy.load(name, mmap_mode="r")

def renamed():
    found = mapped()
    os.rename("q.npy", "other.npy")
    return found

def many(q):
    os.truncate("q.npy", 8192)
    return client.attend_many([(q, values[:64], values[:64]), (values[:64], values[:64], values[:64])], segments=[64])

def blocks():
    q = mapped()
    yield values[:64], values[:64], values[:64]
    os.truncate("q.npy", 8192)
    yield q, values, values

with hilbert_ring.connect({server!r}) as client:
    calls = (
        attend,
        lambda: attend(progress=cut("q.npy", 4 * values.size)),  # within its last page
        lambda: attend(progress=cut("v.npy", 0)),
        lambda: attend(q=mapped()),
        lambda: attend(q=numpy.load("q.npy", mmap_mode="c")),
        lambda: attend(q=renamed(), progress=cut("other.npy", 8192)),
        lambda: attend(ordering=hilbert_ring.Hilbert(coords="order.npy"), progress=cut("order.npy", 4096)),
        lambda: list(client.attend_stream(blocks(), segments=[64])),
        lambda: client.encode("tiles.npy", "coords.npy", model="slide_small", progress=cut("tiles.npy", 8192),
                              by_reference="never", chunk_bytes=4096),
        lambda: client.encode("tiles.npy", "coords.npy", model="slide_small", progress=cut("coords.npy", 8192),
                              by_reference="never", chunk_bytes=4096),
    )
    for call in calls:
        lay()
        outcome(call)
    lay()
    outcome(lambda: asyncio.run(awaited()))
    lay()
    for result in many(mapped()[-64:]):
        print(result if isinstance(result, Exception) else type(result).__name__)
"""


def test_inputs_that_become_shorter(tmp_path):
    import hilbert_ring
    with hilbert_ring.local(workers=2, job_workers=2, model_dir=MODELS) as client:
        lines = run(SHRUNK.format(folder=str(tmp_path), shape=SHAPE, server=client.server))
    names = ["q"] * 2 + ["v"] + ["q"] * 2 + ["other", "order", "q", "tiles", "coords", "q", "q"]
    print("\n".join(lines))
    assert len(lines) == len(names) + 1 and lines[-1] == "AttendResult"
    for line, name in zip(lines, names):
        assert line.startswith("DATA_LOSS: "), line
        assert line.endswith("was shortened while it was read, or its disk failed") and f"/{name}.npy" in line
