#!/usr/bin/env python3
"""Predicts each next symbol of a text by attention over all of it, to show the worth of a long context.

next_symbol.py defines the causal attention without weights. A job runs for each length of segment: 1,024 symbols, four
times as many and so on, up to the whole file. The table has the mean bits per symbol over the file and over its last
tenth. The last tenth has a long context. The file's first symbols have a short context in every job: they raise the
mean of a short file more.

`./dev demo context [FILE]` builds the programs and runs this program. A FASTA file (also .gz) is read as bases. The
default file is a header of the C++ library.
"""
import argparse
import glob
import json
import sys
from pathlib import Path

import hilbert_ring
import next_symbol
import verified
from demo_command import FOLDER, DemoError, exit_code_of
from hilbert_ring.draw.plot import Axis, Series, plot

WORKERS = 2
SHORTEST = 1024
GROWTH = 4
DEFAULT = "/usr/include/c++/*/bits/basic_string.h"


def default_text():
    found = sorted(glob.glob(DEFAULT))
    if not found:
        raise DemoError(f"there is no {DEFAULT}: give a text or a FASTA file")
    return Path(found[-1])


def lengths(tokens, shortest):
    """Returns the lengths of segments: shortest, GROWTH times that and so on, up to the whole text."""
    result, length = [], shortest
    while length < tokens:
        result.append(length)
        length *= GROWTH
    return [*result, tokens]


def measure(client, text, length, tensors):
    """Runs a job. Returns its row of the table, with the JSON's keys, and its outputs."""
    result = client.attend(*tensors, segments=[length], causal=True, scale=1.0)
    report = result.report
    whole, last_tenth = next_symbol.bits_per_symbol(text, result.out, result.lse)
    return {"segment": length, "bits_per_symbol": whole, "bits_per_symbol_last_tenth": last_tenth,
            "seconds": report.total_seconds, "tokens_per_second": report.tokens_per_second,
            "bytes_exchanged": report.bytes_exchanged,
            "bytes_exchanged_naive": report.bytes_exchanged_naive}, result


def demonstrate(arguments):
    file = arguments.file or default_text()
    text = next_symbol.read(file, arguments.limit)
    tensors = next_symbol.attention_inputs(text)
    tokens = len(text.symbols)
    print(f"{file}: {tokens:,} {text.kind}, {len(text.alphabet)} different ones; head_dim "
          f"{tensors[0].shape[2]}, value_dim {tensors[2].shape[2]}, float32, causal")
    print(f"{'a query may see':>16} {'bits/symbol':>12} {'last tenth':>11} {'tokens/s':>12} {'seconds':>8} "
          f"{'MiB exchanged':>14} {'naive ring':>11}", flush=True)
    rows = []
    with hilbert_ring.local(WORKERS, job_workers=WORKERS) as client:
        for length in lengths(tokens, arguments.shortest):
            row, result = measure(client, text, length, tensors)
            rows.append(row)
            print(f"{length:>16,} {row['bits_per_symbol']:>12.3f} "
                  f"{row['bits_per_symbol_last_tenth']:>11.3f} "
                  f"{row['tokens_per_second']:>12,.0f} {row['seconds']:>8.1f} {row['bytes_exchanged'] / 2**20:>14.1f}"
                  f" {row['bytes_exchanged_naive'] / 2**20:>11.1f}", flush=True)
    verdict = verified.by_command(["--segments", str(tokens), "--dilations", "1", "--causal",
                                   "--scale", "1"], [*tensors, result.out, result.lse])
    print(f"hilbert-ring verify, all {tokens:,}: {verdict.strip().splitlines()[-1]}")
    worth, last = (rows[0][key] / rows[-1][key] for key in ("bits_per_symbol", "bits_per_symbol_last_tenth"))
    print(f"All of the text instead of {rows[0]['segment']:,} symbols: {worth:.2f} times fewer "
          f"bits on average, {last:.2f} times in the last tenth.")
    save(arguments.out, file.name, text, rows)


def save(folder, name, text, rows):
    folder.mkdir(parents=True, exist_ok=True)
    figures = {"file": name, "tokens": len(text.symbols), "kind": text.kind,
               "alphabet": len(text.alphabet), "lengths": rows}
    (folder / "context.json").write_text(json.dumps(figures, indent=1) + "\n")
    picture = plot(f"Bits per symbol of {name}, {len(text.symbols):,} {text.kind}",
                   Axis("symbols that a query may see", log=2), Axis("bits per symbol"),
                   [Series(name, [(row["segment"], row[key]) for row in rows]) for name, key in (
                       ("mean of the whole text", "bits_per_symbol"),
                       ("mean of its last tenth", "bits_per_symbol_last_tenth"))])
    (folder / "context.svg").write_text(picture.document())
    print(f"Plot: {folder}/context.svg, figures: context.json")


def main():
    parser = argparse.ArgumentParser(prog="dev demo context", description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, nargs="?", help="text or FASTA, .gz too")
    parser.add_argument("--limit", type=int, help="symbols to take, from the start")
    parser.add_argument("--shortest", type=int, default=SHORTEST, help="segment to begin with")
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder for the plot")
    return exit_code_of(demonstrate, parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
