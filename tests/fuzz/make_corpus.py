#!/usr/bin/env python3
"""Writes the seed corpora of the fuzz targets into tests/fuzz/corpus, the same ones every time.

    python3 tests/fuzz/make_corpus.py

Specs, .npy headers, encoders' configs and weights come from the golden cases. The other targets read
values off their input (input_bytes.h, input_spec.h): their seeds are whole jobs, and jobs with
something wrong, each value in the order in which the target reads it. Files named found_* are inputs
that once broke something; they stay.
"""
import random
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
CASES = TESTS / "golden" / "cases"
ENCODER_CASES = TESTS / "golden" / "encoder_cases"
CORPUS = TESTS / "fuzz" / "corpus"


def write(target, seeds):
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        if not old.name.startswith("found_"):
            old.unlink()
    for name, seed in seeds.items():
        (folder / name).write_bytes(bytes(seed))
    print(f"{target}: {len(seeds)} seeds")


def specs():
    seeds = {}
    for case in sorted(CASES.iterdir()):
        seeds[case.name] = (case / "case.json").read_bytes()
    odd = {
        "empty": b"",
        "nested": b'{"tokens":[[[[[[[[[1]]]]]]]]]}',
        "twice": b'{"tokens":1,"tokens":2}',
        "numbers": b'{"tokens":9223372036854775807,"heads":1e400,"head_dim":8.5,"scale":-0.0}',
        "coords": b'{"tokens":2,"heads":1,"head_dim":8,"segments":[2],"dilations":[1],'
                  b'"ordering":{"curve":"morton","coords":[[0,1],[4294967295,2]]}}',
        "not_utf8": b'{"dtype":"\xff\xfe","\xc3\x28":null}',
    }
    return {**seeds, **{f"odd_{name}": text for name, text in odd.items()}}


def header(text, version=1):
    length = len(text).to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes([version, 0]) + length + text


def npy_headers():
    seeds = {}
    for case in ["dense", "hilbert_coords", "mixed_bfloat16", "hilbert_volume"]:
        for file in sorted((CASES / case).glob("*.npy")) if (CASES / case).is_dir() else []:
            seeds[f"{case}_{file.stem}"] = file.read_bytes()[:192]
    dictionary = "{'descr': '%s', 'fortran_order': %s, 'shape': %s, }          \n"
    for i, (descr, order, shape) in enumerate([
            ("<f4", "False", "(3, 4)"), ("|V2", "False", "()"), ("<i8", "True", "(5,)"),
            (">f4", "False", "(1,)"), ("<f8", "True", "(2, 3)"), ("<u2", "False", "(7)"),
            ("<f2", "False", "(9223372036854775807, 2)"), ("<i4", "False", "(0, 4294967296)")]):
        text = (dictionary % (descr, order, shape)).encode()
        seeds[f"made_{i}"] = header(text, 1 + i % 3)
    seeds["truncated"] = header(b"{'descr'")[:-3]
    seeds["long"] = b"\x93NUMPY\x02\x00\xff\xff\xff\xff{}"
    return seeds


def encoder_configs():
    seeds = {case.name: (case / "config.json").read_bytes()
             for case in sorted(ENCODER_CASES.iterdir())}
    whole = seeds["slide_small"]
    for name, (old, new) in {"heads": (b'"heads": 4', b'"heads": 5'),
                             "layers": (b'"layers": 2', b'"layers": 1e9'),
                             "epsilon": (b"1e-05", b"null"),
                             "position": (b"sincos_2d", b"learned"),
                             "twice": (b'"heads"', b'"layers"')}.items():
        seeds[f"odd_{name}"] = whole.replace(old, new)
    return seeds


def safetensors(header, data):
    return len(header).to_bytes(8, "little") + header + bytes(data)


def safetensors_files():
    seeds = {"small": (ENCODER_CASES / "slide_one_tile" / "model.safetensors").read_bytes()}
    entry = b'"%s":{"dtype":"%s","shape":[%s],"data_offsets":[%d,%d]}'
    made = {"two": ([(b"a", b"F32", b"2", 0, 8), (b"b", b"BF16", b"1,3", 8, 14)], 14),
            "scalar": ([(b"s", b"F16", b"", 0, 2), (b"e", b"I64", b"0,5", 2, 2)], 2),
            "hole": ([(b"a", b"U8", b"1", 0, 1), (b"b", b"U8", b"1", 2, 3)], 3),
            "overlap": ([(b"a", b"U8", b"3", 0, 3), (b"b", b"U8", b"2", 2, 4)], 4),
            "past_end": ([(b"a", b"F32", b"4", 0, 16)], 12),
            "wraps": ([(b"a", b"U8", b"4294967296,4294967296", 0, 0)], 0)}
    for name, (entries, data) in made.items():
        header = b'{"__metadata__":{"format":"pt"},' + b",".join(entry % e for e in entries) + b"}"
        seeds[name] = safetensors(header, data)
    seeds["no_tensors"] = safetensors(b"{}", 0)
    seeds["long"] = b"\xff" * 8 + b"{}"
    return seeds


def varint(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out) + bytes([value])


def field(number, value):
    if isinstance(value, bytes):
        return varint(number << 3 | 2) + varint(len(value)) + value
    return varint(number << 3) + varint(value)


def payload_messages():
    chunk = field(1, 2) + field(2, 300) + field(3, 2)
    crc = varint(5 << 3 | 5) + b"\x01\x02\x03\x04"
    output = field(1, 5) + field(2, 3) + field(4, varint(7) + varint(1)) + field(5, b"abc")
    seeds = {
        "chunk": field(2, chunk + field(4, b"payload") + crc),
        "payload_first": field(2, field(4, b"payload") + chunk),
        "payload_twice": field(2, field(4, b"one") + chunk + field(4, b"two")),
        "no_payload": field(2, chunk + crc),
        "chunk_twice": field(2, chunk) + field(2, crc),
        "open": field(1, field(1, field(1, 4) + field(2, 1)) + field(3, b"job")),
        "output": field(5, output),
        "unknown": field(2, chunk + field(99, b"new") + field(4, b"x")),
        "group": field(2, b"\x33\x08\x01\x34" + field(4, b"x")),
        "long_length": field(2, chunk + b"\x22\xff\xff\xff\xff\x0f"),
        "past_end": b"\x12\x7f" + chunk,
        "large": field(2, chunk + field(4, bytes(600))),
        # Of a worker's stream: rows, a part of the order, an output with its first slot.
        "run_rows": field(3, chunk + field(5, b"payload") + varint(6 << 3 | 5) + b"\x01\x02\x03\x04"),
        "run_order": field(2, field(1, 300) + field(2, bytes(64))),
        "run_output": field(3, output) + field(7, 5),
        "run_slot_first": field(7, 5) + field(3, output),
        "run_rows_then_done": field(3, chunk + field(5, b"x")) + field(4, b""),
    }
    return {f"{name}_{cut}": bytes([cut]) + seed for name, seed in seeds.items() for cut in (2, 255)}


def spec(rng, flags, tokens):
    """What InputSpec reads, without its odd numbers."""
    branches = rng.randrange(4)
    values = [flags & 127, tokens - 1, *(rng.randrange(3) for _ in range(5))]
    if flags & 16:
        values.append(rng.randrange(256))
    values.append(branches)
    for _ in range(branches + 1):
        values += [rng.choice([0, 3, 7, 15, 63, 255]), rng.randrange(12)]
    if flags & 32:
        sequences = rng.randrange(5)
        values += [sequences, *(rng.randrange(12) for _ in range(sequences))]
    if flags & 64:
        kind = rng.randrange(4)
        values += [rng.randrange(2), rng.randrange(2), kind]
        values += [rng.randrange(8) for _ in range({0: 1, 1: 1, 2: 4, 3: 0}[kind])]
    return values


def plans():
    rng = random.Random(1)
    seeds = {}
    for i in range(36):
        seeds[f"small_{i:02}"] = [1, rng.randrange(5), *spec(rng, rng.randrange(128),
                                                            1 + rng.randrange(30))]
    for i in range(12):
        seeds[f"wide_{i:02}"] = [0, rng.randrange(20), *spec(rng, rng.randrange(128),
                                                            1 + rng.randrange(120))]
    # Odd numbers: tokens of a power of two, segments and dilations near 2^62.
    for i in range(12):
        values = spec(rng, i & 31, 20)
        values[0] |= 128
        odd = [3, 12, 30 + i % 11, 1, 5, 0, 230, 62, 128 - i % 3, 6, 0, 230, 61, 130]
        seeds[f"large_{i:02}"] = [0, rng.randrange(20), *values, *odd]
    return seeds


def attend_messages():
    rng = random.Random(2)
    seeds = {}
    for i in range(24):
        values = [rng.randrange(4), 1, *spec(rng, rng.randrange(128), 1 + rng.randrange(40))]
        if i % 3 == 0:  # whole tensors
            values += [i, 0] * 4
        else:  # parts, tensors in turn
            for _ in range(24):
                values += [rng.randrange(200), 16 | rng.choice([0, 2, 4, 8]), rng.randrange(24)]
        seeds[f"job_{i:02}"] = [*values, 252]
    wrong = {
        "past_end": [0, 192, 3, 200], "no_rows": [0, 192, 0, 0], "tensor": [0, 14, 7],
        "checksum": [0, 128, 5, 0], "short": [0, 128, 9, 1], "long": [0, 128, 9, 2],
        "twice": [0, 0, 0, 0, 0, 192, 0, 1], "missing": [0, 16, 3, 252], "cancelled": [0, 0, 255],
        "raw": [241, 0, 9, *b"\x12\x07\x08\x02\x18\x01\x22\x01x"], "changed": [231, 0, 9, 3, 0, 0],
    }
    for i, (name, messages) in enumerate(wrong.items()):
        seeds[f"wrong_{name}"] = [i % 4, 1, *spec(rng, (i * 37) & 63, 8), *messages]
    return seeds


def stream_messages():
    rng = random.Random(4)
    seeds = {}
    for i in range(24):
        values = [rng.choice([0, 0, 2, 8]), *spec(rng, rng.randrange(64), 1 + rng.randrange(40))]
        if i % 3 == 0:  # whole epochs
            values += [i, 0] * 12
        else:  # parts, of a tensor after the other
            for _ in range(40):
                values += [rng.randrange(200), rng.choice([4, 4, 5, 6, 7, 0]), rng.randrange(16)]
        seeds[f"stream_{i:02}"] = [*values, 252]
    wrong = {
        "order": [0, 0, 0, 112, 1, 5, 1], "tensor": [0, 112, 7, 0, 1], "ahead": [0, 1, 0, 13, 9],
        "checksum": [0, 96, 5], "short": [0, 80, 9], "uneven": [0, 5, 3, 252], "changed": [231, 0, 9, 3, 0, 0],
    }
    for i, (name, messages) in enumerate(wrong.items()):
        seeds[f"wrong_{name}"] = [0, *spec(rng, (i * 37) & 31, 8), *messages]
    return seeds


def worker_runs():
    rng = random.Random(3)
    seeds = {}
    for i in range(24):  # whole jobs, every other one in parts; every third in shared memory
        flags = 8 | (16 if i % 2 else 0) | (6 if i % 3 == 0 else 0)
        values = [flags, rng.choice([0, 0, 1, 2]), *spec(rng, rng.randrange(128),
                                                        1 + rng.randrange(48))]
        seeds[f"job_{i:02}"] = [*values, rng.randrange(3), 1, rng.randrange(2), rng.randrange(16)]
    for i in range(20):  # any messages, changed opens
        values = [rng.choice([0, 1, 2, 3]), rng.randrange(3), *spec(rng, rng.randrange(128), 8)]
        seeds[f"odd_{i:02}"] = [*values, *(rng.randrange(256) for _ in range(60))]
    return seeds


def main():
    write("job_spec_json", specs())
    write("npy_header", npy_headers())
    write("payload_message", payload_messages())
    write("plan", plans())
    write("attend_messages", attend_messages())
    write("stream_messages", stream_messages())
    write("worker_run", worker_runs())
    write("encoder_config", encoder_configs())
    write("safetensors", safetensors_files())


if __name__ == "__main__":
    main()
