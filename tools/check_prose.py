#!/usr/bin/env python3
"""Lists sentences of pages, comments and texts that break the rules of CONTRIBUTING.md, and fails above LIMITS.

check_prose.py [--list] [PATH...]: without PATH, all tracked files; with one, the files under it, without limits."""
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

LIMITS = {"pages": 0, "protos and public headers": 0, "texts": 0, "comments": 0}

BAD_START = re.compile(r"(Of|What|Who|Whoever|Whose|One|None|Nobody|Nothing|Those|Where|For(?! example)|As|But|So|Both of)\b")
BAD_WORDS = re.compile(
    r"\b(whoever|nobody|likewise|meanwhile|lest|but for|so (long|many)(?= (a|as it|of)\b|[,.;])|(is|are|has|have|had|with|of) none"
    r"|none (is|are|has|have|of)|th(e|at) ones?(?= (that|who|which|of|with|in|to)\b)|those (that|who)|one that|what (is|has|was)"
    r"|mended|(it|they|worker|job|which|that) rests?|resting|distrust\w*|left out|handed over|strangers?|in turn|parked|passer|pushback"
    r"|tells?|told|says|said|hears?|heard|complain\w*)\b"
    r"|[,;:] for (?!(example|each|every)\b)|[,;] as (it|they|the|there|no)\b"
    r"|\bwhere (there|nothing|no|neither|it (is|has|was|can)|they (are|have|can))\b", re.I)

ROOT = Path(__file__).resolve().parents[1]
SKIP = re.compile(r"LICENSE|bench/results/|tests/(golden|fuzz)/.*(cases|corpus)/|docs/(reference|protocol)\.md"
                  r"|tools/check_prose\.py|.*\.(json|npy|npz|svg|png|safetensors|txt|csv)$")
CODE = re.compile(r".*\.(h|cc|cu|cuh|proto)$")
C_STRINGS = re.compile(r'"((?:[^"\\\n]|\\.)*)"(?:\s*"((?:[^"\\\n]|\\.)*)")*')


def comments(text: str, mark: str):
    """Runs of comment lines as (line, text)."""
    run, first = [], 0
    for number, line in enumerate([*text.splitlines(), ""], 1):
        found = re.match(rf"(?:.*[;{{}},)]\s\s|\s*){mark}+!?\s?(.*)$", line)
        if found and found[1].strip():
            first = first or number
            run.append(found[1])
        elif run:
            yield first, " ".join(run)
            run, first = [], 0


def strings(text: str, python: bool):
    """String literals of four words or more, adjacent ones joined."""
    if python:
        for found in re.finditer(r'"""(.*?)"""|((?:[rf]*"(?:[^"\\\n]|\\.)*"\s*)+)', text, re.S):
            joined = found[1] or " ".join(re.findall(r'"((?:[^"\\\n]|\\.)*)"', found[2]))
            yield text.count("\n", 0, found.start()) + 1, joined
        return
    code = re.sub(r"^\s*(//|#include).*$", "", text, flags=re.M)
    for found in C_STRINGS.finditer(code):
        parts = re.findall(r'"((?:[^"\\\n]|\\.)*)"', found[0])
        yield code.count("\n", 0, found.start()) + 1, "".join(parts)


def paragraphs(text: str):
    """Prose of a page: paragraphs, list items and cells of tables."""
    fenced, run, first = False, [], 0
    for number, line in enumerate([*text.splitlines(), ""], 1):
        fence = line.lstrip().startswith("```")
        fenced ^= fence
        start = re.match(r"\s*([-*+] |\d+\. |\||#|<|!\[|$)", line)
        if run and (fence or start or fenced):
            yield first, " ".join(run)
            run, first = [], 0
        if fenced or fence or re.match(r"\s*(#|<|!\[|$|\|[-| ]+\|$)", line):
            continue
        if line.startswith("|"):
            for cell in line.strip("|").split("|"):
                yield number, cell
        else:
            first = first or number
            run.append(re.sub(r"^\s*([-*+]|\d+\.) ", "", line))


def breaks(path: Path):
    """(category, line, sentence) of each sentence that breaks a rule."""
    name, text = path.relative_to(ROOT).as_posix(), path.read_text()
    public = name.startswith("proto/") or re.match(r"client/cpp/.*\.h$|wire/reason\.h$", name)
    python = name.endswith(".py")
    if name.endswith(".md"):
        found = [("pages", *item) for item in paragraphs(text)]
    else:
        about = "protos and public headers" if public else "comments"
        found = [(about, *item) for item in comments(text, "//" if CODE.match(name) else "#")]
        if python or CODE.match(name):
            kind = "comments" if name.startswith("tests/") else "texts"
            found += [(kind, *item) for item in strings(text, python) if item[1].count(" ") > 2]
    for kind, line, prose in found:
        prose = re.sub(r"`[^`]*`|\[([^]]*)\]\([^)]*\)", lambda match: match[1] or "X", prose)
        for sentence in re.split(r"(?<=[.!?])\s+(?=[\"'(*A-Z])", " ".join(prose.split())):
            if BAD_START.match(sentence.lstrip("*(\"'")) or BAD_WORDS.search(sentence):
                yield kind, line, sentence


wanted = [argument for argument in sys.argv[1:] if argument != "--list"]
listed = subprocess.run(["git", "ls-files", "-z", *wanted], cwd=ROOT, capture_output=True, check=True).stdout.decode()
counts: Counter[str] = Counter()
for file in sorted(filter(None, listed.split("\0"))):
    if SKIP.match(file) or not (ROOT / file).is_file() or (ROOT / file).is_symlink():
        continue
    for kind, line, sentence in breaks(ROOT / file):
        counts[kind] += 1
        if wanted or "--list" in sys.argv:
            print(f"{file}:{line}: {sentence[:160]}")
over = [f"{kind}: {counts[kind]} sentences, must be {limit} or fewer" for kind, limit in LIMITS.items() if counts[kind] > limit]
print("prose: " + ", ".join(f"{counts[kind]} in {kind}" for kind in LIMITS))
if over and not wanted:
    sys.exit("\n".join(over))
