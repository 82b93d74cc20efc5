"""Adds and runs the commands `hilbert-ring bench BENCHMARK`."""
import argparse
import json
from pathlib import Path
from types import ModuleType
from typing import Dict, List

from hilbert_ring._distinct import check_distinct
from hilbert_ring._command_line import whole_number
from hilbert_ring._service_flags import add_service_flags, files_shown
from hilbert_ring.bench import ablate, dilation, load, order, project, sweep

BENCHMARKS: Dict[str, ModuleType] = {"sweep": sweep, "dilation": dilation, "ablate": ablate,
                                     "project": project, "order": order, "load": load}


def add_commands(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="benchmark", required=True, metavar="BENCHMARK")
    for name, module in BENCHMARKS.items():
        summary = str(module.__doc__).split("\n", maxsplit=1)[0]
        command = commands.add_parser(name, help=summary, description=module.__doc__,
                                      formatter_class=argparse.RawDescriptionHelpFormatter)
        add_service_flags(command)
        command.add_argument("--rounds", type=whole_number, default=5, metavar="N",
                             help="counted runs of each case, after a first one without")
        command.add_argument("--out", type=Path, required=True, metavar="FOLDER",
                             help="for NAME.md, NAME.json and NAME.svg")
        module.add_flags(command)


def bench(arguments: argparse.Namespace, line: List[str]) -> int:
    if arguments.rounds < 1 or arguments.workers < 1:
        raise ValueError("--rounds and --workers must be at least 1")
    name = arguments.benchmark
    check_distinct(files_shown(arguments),
                   {f"--out: {name}.{kind}": arguments.out / f"{name}.{kind}" for kind in ("md", "json", "svg")})
    report = BENCHMARKS[arguments.benchmark].run(arguments)
    report.save(arguments.out, line)
    page = arguments.out / f"{report.name}.md"
    if arguments.json:
        print(json.dumps({"out": str(page), "rows": report.rows, "notes": report.notes}))
    else:
        print("\n".join([*report.table(), "", *report.notes]))
        print(page)
    return 0
