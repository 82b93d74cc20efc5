"""Plots measured series: points, lines between them, and their spread."""
import math
from dataclasses import dataclass, field
from typing import List, Sequence, Tuple

from hilbert_ring.draw.svg import FAINT, INK, Svg, color_of

_LEFT, _RIGHT, _TOP, _BOTTOM = 86, 24, 44, 58
_WIDTH, _HEIGHT, _LEGEND_ROW = 720, 420, 18


@dataclass(frozen=True)
class Series:
    """The data of one line.

    Attributes:
        name: text of the legend.
        points: (x, y), in the order of x.
        spread: (least, most) of each point; empty: not drawn.
    """

    name: str
    points: Sequence[Tuple[float, float]]
    spread: Sequence[Tuple[float, float]] = field(default=())


@dataclass(frozen=True)
class Axis:
    """An axis. log: base of its ticks (2 or 10); 0: linear."""

    label: str
    log: int = 0


def quantity(value: float) -> str:
    """Formats the number of a tick: 1.5k, 64k, 2M."""
    for limit, sign in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.4g}{sign}"
    return f"{value:.3g}"


def binary_quantity(value: float) -> str:
    """Formats a power of two: 512, 64Ki, 1Mi."""
    for limit, sign in ((2**30, "Gi"), (2**20, "Mi"), (2**10, "Ki")):
        if value >= limit and value % limit == 0:
            return f"{value / limit:.0f}{sign}"
    return quantity(value)


class _Scale:
    def __init__(self, axis: Axis, values: Sequence[float], first: float, last: float) -> None:
        self._log = axis.log
        least, most = min(values), max(values)
        if axis.log:
            low, high = math.log(least, axis.log), math.log(most, axis.log)
            low, high = math.floor(low + 1e-9), math.ceil(high - 1e-9)
            every = max(1, -(-(high - low) // 8))
            self.ticks: List[float] = [float(axis.log)**i for i in range(low, high + 1, every)]
        else:
            low = min(0.0, least)
            step = _step((most - low) or abs(most) or 1.0)
            low, high = math.floor(low / step) * step, math.ceil(most / step - 1e-9) * step
            self.ticks = [low + i * step for i in range(round((high - low) / step) + 1)]
        self._low, self._span = low, (high - low) or 1
        self._first, self._last = first, last

    def __call__(self, value: float) -> float:
        place = math.log(value, self._log) if self._log else value
        return self._first + (self._last - self._first) * (place - self._low) / self._span


def _step(span: float) -> float:
    """Returns the step of about five ticks: 1, 2 or 5 times a power of ten."""
    rough = span / 5
    power = 10.0**math.floor(math.log10(rough))
    return next(power * digit for digit in (1, 2, 5, 10) if power * digit >= rough * 0.999)


def plot(title: str, x: Axis, y: Axis, series: Sequence[Series]) -> Svg:
    """Draws lines over common axes. Logarithmic axes exclude points of 0 or less."""
    shown = [Series(one.name, *_shown(one, x, y)) for one in series]
    shown = [one for one in shown if one.points]
    picture = Svg(_WIDTH, _HEIGHT + _LEGEND_ROW * len(shown), title)
    picture.text(_LEFT, 24, title, size=15, bold=True)
    if not shown:
        picture.text(_LEFT, 60, "nothing was measured")
        return picture
    x_text = binary_quantity if x.log == 2 else quantity
    across = _Scale(x, [p[0] for one in shown for p in one.points], _LEFT, _WIDTH - _RIGHT)
    up = _Scale(y, [value for one in shown for p, s in zip(one.points, one.spread or one.points)
                    for value in ((p[1], *s) if one.spread else (p[1],))],
                _HEIGHT - _BOTTOM, _TOP)
    for tick in up.ticks:
        picture.line(_LEFT, up(tick), _WIDTH - _RIGHT, up(tick), stroke=FAINT)
        picture.text(_LEFT - 8, up(tick) + 4, quantity(tick), anchor="end", size=11)
    for tick in across.ticks:
        picture.line(across(tick), _HEIGHT - _BOTTOM, across(tick), _HEIGHT - _BOTTOM + 5)
        picture.text(across(tick), _HEIGHT - _BOTTOM + 19, x_text(tick), anchor="middle", size=11)
    picture.line(_LEFT, _HEIGHT - _BOTTOM, _WIDTH - _RIGHT, _HEIGHT - _BOTTOM)
    picture.text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 18, x.label, anchor="middle")
    picture.text(22, (_HEIGHT - _BOTTOM + _TOP) / 2, y.label, anchor="middle", rotate=-90)
    for at, one in enumerate(shown):
        color = color_of(at)
        places = [(across(px), up(py)) for px, py in one.points]
        picture.polyline(places, stroke=color, width=2)
        for (px, py), point, spread in zip(places, one.points, one.spread or one.points):
            if one.spread:
                picture.line(px, up(spread[0]), px, up(spread[1]), stroke=color)
            picture.circle(px, py, 3, fill=color,
                           title=f"{one.name}: {x_text(point[0])}, {quantity(point[1])}")
        row = _HEIGHT + _LEGEND_ROW * at + 4
        picture.rect(_LEFT, row - 9, 14, 9, fill=color)
        picture.text(_LEFT + 22, row, one.name, fill=INK)
    return picture


def _shown(one: Series, x: Axis, y: Axis) -> Tuple[List[Tuple[float, float]],
                                                   List[Tuple[float, float]]]:
    kept = [i for i, (px, py) in enumerate(one.points)
            if (px > 0 or not x.log) and (py > 0 or not y.log)]
    return [one.points[i] for i in kept], [one.spread[i] for i in kept] if one.spread else []
