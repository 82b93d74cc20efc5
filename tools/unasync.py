#!/usr/bin/env python3
"""Makes the blocking client, client.py, of that for asyncio, aio.py, and its other parts likewise."""
import re
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "client/python/hilbert_ring"
MADE_OF = {PACKAGE / made: PACKAGE / source for made, source in (
    ("client.py", "aio.py"), ("_call_with_retries_blocking.py", "_call_with_retries_aio.py"))}
REPLACED = {  # pattern: by what, in this order
    r'\A"""The client for asyncio: .*?"""': '"""The blocking client."""',
    ", for one event loop;": ". Thread-safe;",
    "an `async with`": "a `with`",
    r"\basync (def|for|with)\b": r"\1",
    r"\bawait ": "",
    r"\bAwaitable\[([^\]]*\])\]": r"\1",
    r"\bAwaitable, ": "",
    r"\b__a(enter|exit)__\b": r"__\1__",
    r"\b_connection_aio\b": "_connection",
    r"\bAioConnection\b": "Connection",
    r"_aio\b": "_blocking",
    r"\bAio": "Blocking",
}


def blocking(source):
    """The text that is made of a file's."""
    text = source.read_text()
    for pattern, by in REPLACED.items():
        text = re.sub(pattern, by, text, flags=re.S)
    return f"# Made of {source.name} by tools/unasync.py.\n{text}"


if __name__ == "__main__":
    for made, source in MADE_OF.items():
        made.write_text(blocking(source))
