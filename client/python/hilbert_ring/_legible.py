"""Texts of the service as they may be shown: a terminal does what an escape sequence says, and a text may be as long
as a message."""
import re

# Of ASCII, and of Unicode U+0080 to U+009F.
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f]")
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def legible(text: str, most: int = 4096) -> str:
    """With its control characters escaped, then shortened to so many bytes: as wire/control_characters.h does."""
    return _shortened(_CONTROLS.sub(_escaped, text), most)


def _escaped(control: "re.Match[str]") -> str:
    """As "\\n", "\\r", "\\t", or the bytes of its UTF-8 as "\\x1b": wire/control_characters.h."""
    return _NAMED.get(control[0]) or "".join(f"\\x{byte:02x}" for byte in control[0].encode())


def _shortened(text: str, most: int) -> str:
    encoded = text.encode(errors="replace")
    if len(encoded) <= most:
        return text
    return f"{encoded[:most].decode(errors='ignore')}... ({len(encoded)} bytes)"
