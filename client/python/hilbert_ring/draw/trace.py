"""Draws the timeline of a job from the file of `hilbert-ring attend --trace`."""
from typing import Any, Dict, List, Tuple

from hilbert_ring.draw.svg import FAINT, Svg, color_of
from hilbert_ring.errors import InvalidArgumentError

_LEFT, _RIGHT, _TOP, _ROW, _HEAD = 150.0, 24.0, 56.0, 18.0, 22.0
_WIDTH = 860.0
_KINDS = ("queue", "ring", "start", "receive", "compute", "attend", "merge", "receive blocks",
          "wait for blocks", "send")
_COLORS = dict(zip(_KINDS, (color_of(i) for i in (7, 6, 5, 4, 0, 0, 2, 1, 3, 5))))


def draw_trace(trace: Any) -> Svg:
    """Draws a trace. trace: the file's JSON."""
    try:
        names, tracks, spans = _read(trace["traceEvents"])
        job = trace["otherData"]
        total = float(job["total_seconds"]) * 1e6
        title = f"Job {job['job_id']}: {int(job['tokens']):,} tokens, {_time(total)}"
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidArgumentError(f"this is no trace of `hilbert-ring attend --trace`: {error!r}",
                                   field="trace") from None
    end = max([total, 1.0, *(ts + dur for _, _, ts, dur in spans)])
    height = _TOP + len(names) * _HEAD + len(tracks) * _ROW + 46
    picture = Svg(_WIDTH, height, title)
    picture.text(16, 24, title, size=15, bold=True)
    scale = (_WIDTH - _LEFT - _RIGHT) / end
    tops: Dict[Tuple[int, int], float] = {}
    top = _TOP
    for process in sorted(names):
        picture.text(16, top + 12, names[process], bold=True, size=11)
        top += _HEAD
        for track in sorted(t for p, t in tracks if p == process):
            picture.text(_LEFT - 8, top + 12, tracks[process, track], size=11, anchor="end")
            picture.line(_LEFT, top + _ROW - 1, _WIDTH - _RIGHT, top + _ROW - 1, stroke=FAINT)
            tops[process, track] = top
            top += _ROW
    for name, where, begin, duration in _joined(spans, 0.5 / scale):
        picture.rect(_LEFT + begin * scale, tops[where] + 2, max(duration * scale, 0.5), _ROW - 5,
                     fill=_COLORS.get(name, color_of(7)),
                     title=f"{name}: {begin / 1e3:.2f} to {(begin + duration) / 1e3:.2f} ms")
    for i in range(6):
        x = _LEFT + i * end / 5 * scale
        picture.line(x, _TOP, x, top, stroke=FAINT, dash="2 3")
        picture.text(x, top + 16, _time(i * end / 5), size=11,
                     anchor="end" if i == 5 else "middle")
    return picture


def _time(microseconds: float) -> str:
    if microseconds >= 1e6:
        return f"{microseconds / 1e6:,.2f} s"
    return f"{microseconds / 1e3:,.3g} ms"


_Span = Tuple[str, Tuple[int, int], float, float]  # name, (process, track), microseconds


def _read(events: List[Dict[str, Any]]) -> Tuple[Dict[int, str], Dict[Tuple[int, int], str],
                                                  List[_Span]]:
    names: Dict[int, str] = {}
    tracks: Dict[Tuple[int, int], str] = {}
    spans: List[_Span] = []
    for event in events:
        if event["name"] == "process_name":
            names[event["pid"]] = event["args"]["name"]
        elif event["name"] == "thread_name":
            tracks[event["pid"], event["tid"]] = event["args"]["name"]
        elif event["ph"] == "X":
            spans.append((event["name"], (event["pid"], event["tid"]), float(event["ts"]),
                          float(event["dur"])))
    if not names or {where for _, where, _, _ in spans} - set(tracks):
        raise ValueError("events of tracks that have no name")
    return names, tracks, spans


def _joined(spans: List[_Span], nearer: float) -> List[_Span]:
    """Joins spans of the same kind and track with a gap below `nearer`."""
    result: List[_Span] = []
    for name, where, begin, duration in sorted(spans, key=lambda s: (s[1], s[0], s[2])):
        if result and result[-1][:2] == (name, where):
            before = result[-1]
            if begin - (before[2] + before[3]) < nearer:
                end = max(before[2] + before[3], begin + duration)
                result[-1] = (name, where, before[2], end - before[2])
                continue
        result.append((name, where, begin, duration))
    return result
