#!/usr/bin/env python3
"""Makes the blocking client, client.py, from the asyncio client, aio.py."""
import re
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "client/python/hilbert_ring"
SOURCE, MADE = PACKAGE / "aio.py", PACKAGE / "client.py"
REPLACED = {  # pattern: replacement, in this order
    r'\A""".*?"""': '# Made of aio.py by tools/unasync.py.\n"""The blocking client."""',
    ", bound to one event loop;": ". Thread-safe;",
    "an `async with`": "a `with`",
    r"\basync (def|for|with)\b": r"\1",
    r"\bawait ": "",
    r"\b__a(enter|exit)__\b": r"__\1__",
    r"\b_connection_aio\b": "_connection",
    r"\bAioConnection\b": "Connection",
    r"_aio\b": "_blocking",
    r"\bAio": "Blocking",
}


def blocking(source):
    """Returns the text of client.py."""
    for pattern, by in REPLACED.items():
        source = re.sub(pattern, by, source, flags=re.S)
    return source


if __name__ == "__main__":
    MADE.write_text(blocking(SOURCE.read_text()))
