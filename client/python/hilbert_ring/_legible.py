"""Texts of the service as they may be shown: a terminal does what an escape sequence says, and a text may be as long
as a message."""
import re

_MOST_BYTES = 4096  # four times what the service itself cuts them to, as in wire/status.cc
# Of ASCII, and of Unicode U+0080 to U+009F.
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f]")
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def legible(text: str) -> str:
    """Shortened, with its control characters escaped."""
    return _CONTROLS.sub(_escaped, _shortened(text))


def _escaped(control: "re.Match[str]") -> str:
    """As "\\n", "\\r", "\\t", or the bytes of its UTF-8 as "\\x1b": wire/control_characters.h."""
    return _NAMED.get(control[0]) or "".join(f"\\x{byte:02x}" for byte in control[0].encode())


def _shortened(text: str) -> str:
    encoded = text.encode(errors="replace")
    if len(encoded) <= _MOST_BYTES:
        return text
    return f"{encoded[:_MOST_BYTES].decode(errors='ignore')}... ({len(encoded)} bytes)"
