#!/usr/bin/env python3
"""Checks the rules of layers: includes between them, and names without meaning.

    tools/check_layers.py [FOLDER]

prints FILE:LINE: MESSAGE for each breach and exits with 1 if there is a breach, else with 0.
"""
import re
import subprocess
import sys
from pathlib import Path

PROTO = "hilbert_ring/v1"
ENGINE = {f"engine/{layer}"
          for layer in ("base", "spec", "order", "plan", "device", "comm", "reference", "run", "model",
                         "model/files")}

# Layer -> the layers that it may include besides itself and engine/base. A folder comes before the folder around it.
MAY_INCLUDE = {
    "engine/base": set(),
    "engine/spec": set(),
    "engine/order": {"engine/spec"},
    "engine/plan": {"engine/spec", "engine/order"},
    "engine/device/cuda/kernels": {"engine/spec", "engine/device"},
    "engine/device/cuda": {"engine/spec", "engine/device", "engine/device/cuda/kernels"},
    "engine/device": {"engine/spec", "engine/device/cuda"},
    "engine/comm": set(),
    "engine/reference": {"engine/spec", "engine/order"},
    "engine/run": {"engine/spec", "engine/plan", "engine/device", "engine/comm"},
    "engine/model/files": {"engine/spec", "engine/plan"},
    "engine/model": {"engine/spec", "engine/plan", "engine/device", "engine/comm", "engine/run",
                     "engine/model/files"},
    "wire": {PROTO, "engine/spec", "engine/plan"},
    "server/process": {PROTO, "wire", "engine/spec"},
    "server/shard": {PROTO, "wire", "engine/spec", "engine/plan", "engine/model/files"},
    "server/files": {"wire", "server/process"},
    "server/models": {PROTO, "wire", "server/process", "engine/spec", "engine/plan", "engine/model/files"},
    "server/metrics": {PROTO, "wire"},
    "server/access": {"wire", "server/process", "engine/spec"},
    "server/cluster": {PROTO, "wire", "server/process", "server/metrics"},
    "server/schedule": {PROTO, "wire", "server/process", "server/cluster", "engine/spec",
                        "engine/plan", "engine/model/files"},
    "server/rows": {PROTO, "wire", "server/process", "server/models", "server/cluster", "server/shard",
                    "engine/spec", "engine/order", "engine/plan", "engine/model/files",
                    "engine/reference"},
    "server/job": {PROTO, "wire", "server/process", "server/access", "server/metrics",
                   "server/models", "server/files", "server/shard", "server/cluster", "server/schedule",
                   "server/rows", "engine/spec",
                   "engine/order", "engine/plan", "engine/model/files"},
    "server/stream": {PROTO, "wire", "server/process", "server/access", "server/shard", "server/job",
                      "engine/spec"},
    "server/coordinator": {PROTO, "wire", "server/process", "server/access", "server/metrics",
                           "server/cluster", "server/models", "server/files", "server/shard",
                           "server/schedule", "server/job", "server/stream", "engine/spec",
                           "engine/plan", "engine/model/files"},
    "server/worker": {PROTO, "wire", "server/process", "server/access", "server/metrics", "server/models", "server/files",
                      "server/shard"} | ENGINE,
    "client": {PROTO, "wire", "engine/spec", "engine/order", "engine/plan", "engine/model/files",
               "engine/reference"},
}
# Examples may include the headers that cmake/install.cmake installs.
MAY_INCLUDE["examples"] = {PROTO, "client", "engine/spec", "wire"}
TESTS = ("tests", "bench")
MAY_INCLUDE.update({layer: {PROTO, *MAY_INCLUDE, *TESTS} for layer in TESTS})

# Start of a library's includes -> the layers that may include it.
LIBRARIES = {
    "grpc": {"wire", "server", "client", *TESTS},
    "google/": {"wire", "server", "client", *TESTS},
    "prometheus/": {"server", *TESTS},
    "spdlog/": {"server", *TESTS},
    "CLI/": {"server", "client", *TESTS},
    "gloo/": {"engine/comm", *TESTS},
    "nccl": {"engine/comm", *TESTS},
    "hwy/": {"engine/device", "engine/model", *TESTS},
    "cuda": {"engine/device", "engine/comm", *TESTS},
    "oneapi/": {"engine/model", *TESTS},
    "cublas": {"engine/device", *TESTS},
    "cudnn": {"engine/device", *TESTS},
}

OWN = ("engine/", "wire/", "server/", "client/", "examples/", "tests/", "bench/", PROTO + "/")
SOURCES = (".h", ".cc", ".cu", ".cuh")
GLOO_HEADERS = "engine/comm/gloo_headers/gloo/common/"  # Gloo's own name of the folder
EMPTY_NAMES = {"util", "utils", "helper", "helpers", "common", "manager"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def repository_files(root):
    """Returns the files that git tracks or would track, relative to the root."""
    command = ["git", "-c", f"safe.directory={root}", "ls-files", "-z", "--cached", "--others",
               "--exclude-standard"]
    listed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    return sorted({name for name in listed.split("\0") if name and (root / name).is_file()})


def layer_of(path):
    """Returns the layer of a file or an included header; None: it is outside of the layers."""
    for layer in [*MAY_INCLUDE, PROTO]:
        if path.startswith(layer + "/"):
            return layer
    return None


def within(layer, layers):
    return any(layer == allowed or layer.startswith(allowed + "/") for allowed in layers)


def include_breach(layer, quote, included):
    """Returns the breach of an include in a file of a layer; None: it is allowed."""
    for start, layers in LIBRARIES.items():
        if included.startswith(start) and not within(layer, layers):
            return f"{layer} does not include {included}: it belongs to {', '.join(sorted(layers))}"
    if included.startswith(OWN):
        if quote == "<":
            return f"our own headers are included with quotes: {included}"
        other = layer_of(included)
        if other is None:
            return f"{included} is in no layer that tools/check_layers.py knows"
        if other not in {layer, "engine/base"} | MAY_INCLUDE[layer]:
            return f"{layer} may not include {other}: {included}"
    elif quote == '"' and ("/" not in included or included.startswith(".")):
        return f"includes name the full path from the root: {included}"
    return None


def file_breaches(root, name):
    words = re.split(r"[^a-z]+", name.lower().replace(GLOO_HEADERS, ""))
    for word in EMPTY_NAMES.intersection(words):
        yield 1, f"the name '{word}' does not describe the content"
    if not name.endswith(SOURCES):
        return
    layer = layer_of(name)
    if layer is None:
        yield 1, "this file is in no layer that tools/check_layers.py knows"
        return
    text = (root / name).read_text(encoding="utf-8", errors="replace")
    for number, line in enumerate(text.splitlines(), 1):
        include = INCLUDE.match(line)
        breach = include and include_breach(layer, include[1], include[2])
        if breach:
            yield number, breach


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
    files = repository_files(root)
    breaches = [(name, line, text) for name in files for line, text in file_breaches(root, name)]
    for name, line, text in breaches:
        print(f"{name}:{line}: {text}", file=sys.stderr)
    checked = sum(name.endswith(SOURCES) for name in files)
    print(f"{checked} source files, {len(breaches)} breaches of the layers' rules")
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
