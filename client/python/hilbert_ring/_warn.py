"""Warns of jobs whose spec or result a caller may not intend. The texts are those of the command line.

A job warns once, regardless of attempts. A warning shows the line that called this package.
"""
import sys
import warnings
from typing import Iterator, Type

from hilbert_ring._spec import key_lengths_of
from hilbert_ring.v1 import attention_pb2 as pb

_PACKAGE = __name__.partition(".")[0]


def warn(message: str, category: Type[Warning]) -> None:
    """Warns at the nearest line outside of this package."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and _is_ours(frame.f_globals.get("__name__", "")):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def warn_of_rows(report: pb.Report) -> None:
    if report.rows_not_finite:
        warn(f"{report.rows_not_finite} of {report.tokens} rows of the output are not finite, the first for "
             f"token {report.first_row_not_finite}", RuntimeWarning)


def warn_of_slides(report: pb.Report, slides: int) -> None:
    if report.rows_not_finite:
        warn(f"the embeddings of {report.rows_not_finite} of {slides} slides are not finite, the first of "
             f"slide {report.first_row_not_finite}", RuntimeWarning)


def warn_of_notes(report: pb.Report) -> None:
    for note in report.notes:
        warn(note, UserWarning)


def warn_of_spec(spec: pb.JobSpec) -> None:
    for note in notes_on(spec):
        warn(note, UserWarning)


def notes_on(spec: pb.JobSpec) -> Iterator[str]:
    """Yields the sentences of engine/spec/spec_notes.cc: valid settings that are seldom intended."""
    order = spec.ordering
    if spec.HasField("ordering") and not (order.window or order.grid or order.coordinate_axes):
        yield ("ordering: neither grid nor coordinates are given: the curve runs over a square that the tokens "
               "of a sequence fill row by row")
    branches, heads = len(spec.segments), spec.heads
    if spec.mixing == pb.MIXING_HEAD_GROUPS and branches > heads > 0:
        divided = f"; outputs are still divided by {branches}" if spec.average_groups else ""
        yield (f"segments: {branches} branches for {heads} head{'s' if heads > 1 else ''}: with mixing "
               f"head_groups those from branch {heads} on have no head and compute nothing{divided}")
    longest = max(key_lengths_of(spec)) if max(spec.dilations, default=1) > 1 else 0  # a rate of 1 needs no length
    for i, (segment, dilation) in enumerate(zip(spec.segments, spec.dilations)):
        if dilation > min(segment, longest) > 0:
            cut = " (the longest sequence)" if segment > longest else ""
            yield (f"dilations[{i}]: {dilation} is above its segment of {min(segment, longest)}{cut}: a head "
                   "reads at most one row of a segment")
    if spec.tail == pb.TAIL_ZERO and spec.causal:
        yield "tail: zero has no effect on a causal job"


def _is_ours(module: str) -> bool:
    return module == _PACKAGE or module.startswith(_PACKAGE + ".")
