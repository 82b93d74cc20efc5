"""Results have the kind of the inputs, for every kind of tensor."""
import array
import gzip
import io
import os

import numpy as np
import pytest

import hilbert_ring
from client_rig import ByAsyncio, program

SHAPE = (96, 2, 8)
PATTERN = {"segments": [32, 96], "dilations": [1, 2], "mixing": "lse", "progress": False}


def tensors(dtype="f4"):
    random = np.random.default_rng(7)
    return tuple(random.integers(-8, 8, SHAPE).astype(dtype) / np.array(4, dtype) for _ in "qkv")


@pytest.fixture(scope="module")
def expected(client):
    return client.attend(*tensors(), **PATTERN)


def same(result, expected):
    np.testing.assert_array_equal(np.asarray(result.out), expected.out)
    np.testing.assert_array_equal(np.asarray(result.lse), expected.lse)


def test_memory_maps_in_and_out(client, expected, tmp_path):
    mapped = []
    for name, values in zip("qkv", tensors()):
        np.save(tmp_path / f"{name}.npy", values)
        mapped.append(np.load(tmp_path / f"{name}.npy", mmap_mode="r"))
    out = np.lib.format.open_memmap(tmp_path / "out.npy", "w+", np.float32, SHAPE)
    result = client.attend(*mapped, out=out, **PATTERN)
    assert result.out is out
    out.flush()
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), expected.out)


def saved(values=np.zeros((16, 2, 8), "f4")):
    file = io.BytesIO()
    np.save(file, values)
    return file.getvalue()


HEADER = "{'descr': '<f4', 'fortran_order': False, 'shape': (16, 2, 8), }"


def with_header(text=HEADER, old="", new="", version=1, length=None):
    """Returns a file with this header, after a replacement in its text."""
    header = text.replace(old, new).encode("latin-1") + b"\n"
    size = (length or len(header)).to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes([version, 0]) + size + header + bytes(1024)


BROKEN = {
    "text": b"q, k, v\n1, 2, 3\n",
    "gzip": gzip.compress(saved()),
    "empty": b"",
    **{f"cut_{size}": saved()[:size] for size in (8, 60, -1)},
    "long": saved() + b"x",
    "version": with_header(version=9),
    "list": with_header("[1, 2]"),
    "twice": with_header(old="'shape'", new="'descr': '<f4', 'shape'"),
    "missing": with_header(old="'fortran_order': False, ", new=""),
    "objects": with_header(old="<f4", new="|O"),
    "negative": with_header(old="16", new="-16"),
    "larger": with_header(old="16", new=str(10**30)),
    "numbers": with_header(old="(16, 2, 8)", new="(256)"),
    **{f"structure_{place}": with_header(old="'<f4'", new=descr)
       for place, descr in enumerate(("[('a', '<f4')]", "[('a', '<f2')]", "('<f2', (1,))"))}}
OWN_WORDS = {"list", "twice", "missing", "negative", "larger", "numbers", "structure_0", "structure_1", "structure_2"}


@pytest.mark.parametrize("name", [*BROKEN, "folder", "pipe", "absent"])
def test_files_that_are_no_npy_are_refused_in_the_command_lines_words(client, tmp_path, name):
    path = tmp_path / "broken.npy"
    if name in BROKEN:
        path.write_bytes(BROKEN[name])
    elif name != "absent":
        os.mkfifo(path) if name == "pipe" else path.mkdir()
    good = np.zeros((16, 2, 8), "f4")
    np.save(tmp_path / "good.npy", good)
    files = {"q": path, "k": tmp_path / "good.npy", "v": tmp_path / "good.npy", "out": tmp_path / "out.npy"}
    done = program("attend", "--server", client.server, "--segments=8", "--dilations=1",
                   *(f"--{flag}={file}" for flag, file in files.items()))
    assert done.returncode == 2 and str(path) in done.stderr
    for given in (str(path), path):
        with pytest.raises(hilbert_ring.InvalidArgumentError) as raised:
            client.attend(given, good, good, segments=[8], progress=False)
        words = raised.value.message
        assert raised.value.field == "q" and words.startswith(f"q: {path}: ")
        if name in OWN_WORDS:
            assert ".npy header: " in words and ".npy header: " in done.stderr
        else:
            assert done.stderr.rstrip().endswith(words[len("q: "):])


@pytest.mark.parametrize("data", [
    with_header(version=2), with_header(version=3), with_header(old="'", new='"'),
    with_header(old="}", new="}" + " " * 20000),
    with_header("{'shape':(16,2,8),'fortran_order':True,\t'descr':'>f4'}")])
def test_headers_of_other_writers(client, tmp_path, data):
    (tmp_path / "q.npy").write_bytes(data)
    good = np.zeros((16, 2, 8), "f4")
    assert client.attend(tmp_path / "q.npy", good, good, segments=[8], progress=False).out.shape == (16, 2, 8)


class Dataset:
    """A data set that is read by slices, like h5py's."""

    def __init__(self, values, reads=None):
        self.values, self.shape, self.dtype = values, values.shape, values.dtype
        self.reads = reads

    def __getitem__(self, rows):
        if self.reads is not None:
            self.reads.append(rows.stop - rows.start)
        return self.values[rows]


def test_only_the_rows_that_are_sent_are_read(client, expected):
    reads = []
    result = client.attend(*(Dataset(x, reads) for x in tensors()), chunk_bytes=640, **PATTERN)
    same(result, expected)
    assert max(reads) == 10 and sum(reads) == 3 * SHAPE[0]


def test_slices_with_masked_values_are_refused(client, expected):
    class Dataset:  # slices are masked arrays, like netCDF4's
        def __init__(self, values, masked):
            self.values = np.ma.masked_array(values, mask=False)
            self.values[50:50 + masked] = np.ma.masked
            self.shape, self.dtype = values.shape, values.dtype

        def __getitem__(self, rows):
            return self.values[rows]

    q, k, v = tensors()
    same(client.attend(*(Dataset(x, 0) for x in (q, k, v)), **PATTERN), expected)
    with pytest.raises(hilbert_ring.InvalidArgumentError, match="k has masked values in rows") as raised:
        client.attend(q, Dataset(k, 1), v, **PATTERN)
    assert raised.value.field == "k"


@pytest.mark.parametrize("change", [
    lambda x: np.asfortranarray(x), lambda x: x.astype(">f4"),
    lambda x: np.repeat(x, 2, axis=0)[::2],
    lambda x: x.transpose(1, 0, 2).copy().transpose(1, 0, 2),
    lambda x: np.broadcast_to(x, SHAPE)])
def test_arrays_of_any_strides_and_byte_order(client, expected, change):
    same(client.attend(*map(change, tensors()), **PATTERN), expected)


@pytest.mark.parametrize("which, kind, how", [
    ("qkv", np.asarray, "attend"), ("q", Dataset, "attend"), ("kv", np.asarray, "attend_many"),
    ("qkv", Dataset, "attend_stream")])
def test_big_endian_rows_give_results_of_this_machine(client, expected, which, kind, how):
    """Inputs of a float32 job, and raw inputs of 16 bits."""
    given = [kind(x.astype(">f4")) if name in which else x for name, x in zip("qkv", tensors())]
    pattern = {name: value for name, value in PATTERN.items() if name != "progress"}

    def run(values, **more):
        if how == "attend":
            return client.attend(*values, **PATTERN, **more)
        if how == "attend_many":
            return client.attend_many([values], **pattern, **more)[0]
        return list(client.attend_stream([values], lse=True, **pattern, **more))[0]

    result = run(given)
    assert result.out.dtype == np.dtype("f4") and result.out.dtype.isnative
    assert result.lse.dtype == np.dtype("f4") and result.lse.dtype.isnative
    np.testing.assert_allclose(result.out, expected.out, atol=1e-5)
    np.testing.assert_allclose(result.lse, expected.lse, atol=1e-5)
    bits = [(x.view("u4") >> 16).astype("u2") for x in tensors()]
    raw = run([kind(x.astype(">u2")) if name in which else x for name, x in zip("qkv", bits)], dtype="bfloat16")
    assert raw.out.dtype == np.dtype("u2") and raw.out.dtype.isnative
    np.testing.assert_allclose((raw.out.astype("u4") << 16).view("f4"), expected.out, rtol=0.02, atol=0.02)


def test_buffers_give_buffers(client, expected):
    views = [memoryview(array.array("f", x.reshape(-1).tolist())).cast("B").cast("f", SHAPE)
             for x in tensors()]
    result = client.attend(*views, **PATTERN)
    assert isinstance(result.out, memoryview) and isinstance(result.lse, memoryview)
    same(result, expected)


def test_dlpack_gives_what_its_library_makes_of_it(client, expected):
    class Namespace:
        @staticmethod
        def from_dlpack(x):
            return Tensor(np.from_dlpack(x))

    class Tensor:
        def __init__(self, values):
            self.values = values

        def __dlpack__(self, **options):
            return self.values.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.values.__dlpack_device__()

        def __array_namespace__(self):
            return Namespace

    result = client.attend(*map(Tensor, tensors()), **PATTERN)
    assert isinstance(result.out, Tensor) and isinstance(result.lse, Tensor)
    np.testing.assert_array_equal(result.out.values, expected.out)
    np.testing.assert_array_equal(result.lse.values, expected.lse)


@pytest.mark.parametrize("raw, dtype", [("u2", "bfloat16"), ("i2", "bfloat16"), ("V2", None)])
def test_raw_bfloat16(client, expected, raw, dtype):
    bits = [(x.view("u4") >> 16).astype("u2").view(raw) for x in tensors()]
    result = client.attend(*bits, dtype=dtype, **PATTERN)
    assert result.out.dtype == np.dtype(raw) and result.lse.dtype == np.float32
    out = (result.out.view("u2").astype("u4") << 16).view("f4")
    np.testing.assert_allclose(out, expected.out, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16"])
def test_torch_gives_torch(client, expected, name):
    torch = pytest.importorskip("torch")
    dtype = getattr(torch, name)
    result = client.attend(*(torch.from_numpy(x).to(dtype) for x in tensors()), **PATTERN)
    assert result.out.dtype == dtype and result.lse.dtype == torch.float32
    assert result.out.device.type == "cpu"
    limit = {"float32": 0, "float16": 2e-3, "bfloat16": 0.02}[name]
    np.testing.assert_allclose(result.out.float().numpy(), expected.out, rtol=limit, atol=limit)


def test_torch_views_and_outputs(client, expected):
    torch = pytest.importorskip("torch")
    heads_first = [torch.from_numpy(x).transpose(0, 1).contiguous() for x in tensors()]
    out, lse = torch.zeros(SHAPE), torch.zeros(SHAPE[:2])
    result = client.attend(*(x.transpose(0, 1) for x in heads_first), out=out, lse=lse, **PATTERN)
    assert result.out is out and result.lse is lse
    same(result, expected)


def test_torch_gradients_are_refused(client):
    torch = pytest.importorskip("torch")
    q, k, v = map(torch.from_numpy, tensors())
    q.requires_grad_()
    with pytest.raises(hilbert_ring.InvalidArgumentError, match="gradient") as raised:
        client.attend(q, k, v, **PATTERN)
    assert raised.value.field == "q"
    sinks = torch.nn.Parameter(torch.zeros(q.shape[1]))
    with pytest.raises(hilbert_ring.InvalidArgumentError, match="gradient") as raised:
        client.attend(q.detach(), k, v, sinks=sinks, **PATTERN)
    assert raised.value.field == "sinks"
    with torch.no_grad():
        client.attend(q, k, v, sinks=sinks, **PATTERN)


def test_outputs_into_arrays_of_the_caller(client, expected):
    out, lse = np.zeros(SHAPE, "f4"), np.zeros(SHAPE[:2], "f4")
    result = client.attend(*tensors(), out=out, lse=lse, **PATTERN)
    assert result.out is out and result.lse is lse
    same(result, expected)
    assert client.attend(*tensors(), lse=False, **PATTERN).lse is None


def test_what_reading_raises_reaches_the_caller(client):
    class Broken:
        shape, dtype = SHAPE, np.dtype("f4")

        def __getitem__(self, rows):
            raise OSError("the disk is gone")

    q, k, _ = tensors()
    for made in (client, ByAsyncio(client.server)):
        with pytest.raises(OSError, match="the disk is gone"):
            made.attend(q, k, Broken(), **PATTERN)
