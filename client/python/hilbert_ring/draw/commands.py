"""hilbert-ring draw pattern|order|plan|trace"""
import argparse
import json
import sys
from pathlib import Path
from typing import Any

from hilbert_ring._distinct import check_distinct
from hilbert_ring._job_flags import add_job_flags, coords_path_of, job_of, read_json
from hilbert_ring._pending import find_output, write_text
from hilbert_ring._service_flags import add_service_flags, files_shown, service_of
from hilbert_ring.draw.order import draw_order
from hilbert_ring.draw.pattern import draw_pattern
from hilbert_ring.draw.plan import draw_plan
from hilbert_ring.draw.svg import Svg
from hilbert_ring.draw.trace import draw_trace
from hilbert_ring.v1 import attention_pb2 as pb

_STDOUT = 1  # its descriptor


def add_commands(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="picture", required=True, metavar="PICTURE")
    pattern = commands.add_parser("pattern", help="which query sees which key, by branch and head")
    add_job_flags(pattern, tokens=64, heads=4)
    pattern.set_defaults(run=lambda a: draw_pattern(job_of(a)))
    order = commands.add_parser("order", help="the curve over the grid, segments coloured")
    add_job_flags(order)
    order.set_defaults(run=lambda a: draw_order(job_of(a)))
    plan = commands.add_parser("plan", help="slots of each worker, and transfers of each step")
    add_job_flags(plan, heads=8, head_dim=64)
    add_service_flags(plan)
    plan.set_defaults(run=_plan)
    trace = commands.add_parser("trace", help="the timeline of a job")
    trace.add_argument("trace", type=Path, help="the file of `hilbert-ring attend --trace`")
    trace.set_defaults(run=_trace)
    for command in (pattern, order, plan, trace):
        command.add_argument("--out", type=Path, required=True, metavar="FILE", help="the SVG (-: to stdout)")


def draw(arguments: argparse.Namespace) -> int:
    _check_out(arguments)
    picture: Svg = arguments.run(arguments)
    if str(arguments.out) == "-" or find_output(arguments.out).descriptor == _STDOUT:
        print(picture.document(), end="")
        return 0
    write_text(arguments.out, picture.document())
    print(json.dumps({"out": str(arguments.out)}) if arguments.json else arguments.out)
    return 0


def _check_out(arguments: argparse.Namespace) -> None:
    """Raises InvalidArgumentError if the picture would replace a file that the command reads."""
    given = {f"--{name}": getattr(arguments, name, None) for name in ("spec", "trace")}
    given["the trace"] = given.pop("--trace")
    given["coords_file"] = coords_path_of(arguments) if given["--spec"] is not None else None
    if str(arguments.out) != "-":
        check_distinct({**given, **files_shown(arguments)}, {"--out": arguments.out})


def _plan(arguments: argparse.Namespace) -> Svg:
    job = job_of(arguments)
    with service_of(arguments) as client:
        plan = client.plan(**job.plan_arguments(), workers=arguments.workers)
    if plan.curve_why:
        curve = {pb.CURVE_HILBERT: "hilbert", pb.CURVE_MORTON: "morton"}.get(plan.curve, "none")
        print(f"curve auto: {curve}, since {plan.curve_why}", file=sys.stderr)
    return draw_plan(job, plan)


def _trace(arguments: argparse.Namespace) -> Svg:
    try:
        trace: Any = read_json(arguments.trace)
    except ValueError:
        trace = None
    return draw_trace(trace)
