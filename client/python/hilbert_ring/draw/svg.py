"""Makes pictures as SVG text, without a plotting library.

    picture = Svg(400, 300, "A title for screen readers")
    picture.rect(10, 10, 50, 20, fill=COLORS[0])
    picture.text(10, 50, "words")
    picture.document()          # the file's text; the same calls give the same bytes

Lengths are in pixels, from the upper left corner, rounded to two decimals.
"""
from typing import List, Optional, Sequence, Tuple
from xml.sax.saxutils import escape, quoteattr

FONT = "DejaVu Sans, Verdana, sans-serif"
INK = "#222222"
FAINT = "#d9d9d9"
# Okabe and Ito's palette for colour-blind readers.
COLORS = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#56b4e9", "#cc79a7", "#8c8c3c", "#555555")

# Pale colours of areas below lines.
TINTS = ("#b3d4e8", "#f8e0b0", "#b3e0d4", "#f0cdb0", "#d0ebfa", "#eed6e2", "#dcdcbc", "#d0d0d0")


def color_of(number: int) -> str:
    return COLORS[number % len(COLORS)]


def number(value: float) -> str:
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


class Svg:
    """A picture to which calls add shapes, and which `document` returns as text."""

    def __init__(self, width: float, height: float, title: str) -> None:
        self._size = (number(width), number(height))
        self._title = title
        self._parts: List[str] = []

    def rect(self, left: float, top: float, width: float, height: float, *, fill: str = "none",
             stroke: str = "none", title: str = "") -> None:
        """Adds a rectangle. title: shown by browsers under the pointer."""
        self._add("rect", title, x=number(left), y=number(top), width=number(max(width, 0)),
                  height=number(max(height, 0)), fill=fill, stroke=stroke)

    def circle(self, x: float, y: float, radius: float, *, fill: str, title: str = "") -> None:
        self._add("circle", title, cx=number(x), cy=number(y), r=number(radius), fill=fill)

    def line(self, x1: float, y1: float, x2: float, y2: float, *, stroke: str = INK,
             width: float = 1.0, dash: str = "", arrow: bool = False, title: str = "") -> None:
        self._add("line", title, x1=number(x1), y1=number(y1), x2=number(x2), y2=number(y2),
                  stroke=stroke, stroke_width=number(width), stroke_dasharray=dash,
                  marker_end="url(#arrow)" if arrow else "")

    def polyline(self, points: Sequence[Tuple[float, float]], *, stroke: str,
                 width: float = 1.5) -> None:
        self._add("polyline", "", points=" ".join(f"{number(x)},{number(y)}" for x, y in points),
                  fill="none", stroke=stroke, stroke_width=number(width),
                  stroke_linejoin="round")

    def path(self, commands: str, *, fill: str) -> None:
        """Adds an area of any outline. No effect without commands."""
        if commands:
            self._add("path", "", d=commands, fill=fill)

    def text(self, x: float, y: float, words: str, *, size: float = 12, anchor: str = "start",
             fill: str = INK, bold: bool = False, rotate: Optional[float] = None) -> None:
        """Adds a line of text. anchor: the part of it that is at x: "start", "middle" or "end"."""
        turned = "" if rotate is None else f"rotate({number(rotate)} {number(x)} {number(y)})"
        self._parts.append(
            self._tag("text", x=number(x), y=number(y), font_size=number(size),
                      text_anchor="" if anchor == "start" else anchor, fill=fill,
                      font_weight="bold" if bold else "", transform=turned)
            + f">{escape(words)}</text>")

    def document(self) -> str:
        width, height = self._size
        return "\n".join([
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" font-family={quoteattr(FONT)} role="img">',
            f"<title>{escape(self._title)}</title>",
            '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="9" '
            'markerHeight="9" markerUnits="userSpaceOnUse" orient="auto">'
            f'<path d="M0 0L8 4L0 8z" fill="{INK}"/></marker></defs>',
            f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
            *self._parts, "</svg>", ""])

    def _add(self, name: str, title: str, **attributes: str) -> None:
        tag = self._tag(name, **attributes)
        self._parts.append(f"{tag}><title>{escape(title)}</title></{name}>" if title
                           else f"{tag}/>")

    @staticmethod
    def _tag(name: str, **attributes: str) -> str:
        return f"<{name}" + "".join(
            f" {key.replace('_', '-')}={quoteattr(value)}" for key, value in attributes.items()
            if value and not (key == "stroke" and value == "none"))
