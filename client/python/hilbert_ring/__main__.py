"""hilbert-ring draw|bench|slide: pictures of jobs, benchmarks of a service, and slides of pipelines.

The program `hilbert-ring` starts `python3 -m hilbert_ring` for these commands.
"""
import argparse
import errno
import sys
from typing import List, Optional

from hilbert_ring import _slide_command
from hilbert_ring._command_line import Parser, end_by_signals, failed, take_json
from hilbert_ring.bench import commands as bench_commands
from hilbert_ring.draw import commands as draw_commands
from hilbert_ring.errors import HilbertRingError

_CODES = {errno.ENOENT: "NOT_FOUND", errno.EACCES: "PERMISSION_DENIED", errno.EPERM: "PERMISSION_DENIED",
          errno.EEXIST: "ALREADY_EXISTS", errno.ENOSPC: "RESOURCE_EXHAUSTED", errno.EISDIR: "FAILED_PRECONDITION",
          errno.ENOTDIR: "FAILED_PRECONDITION"}


def main(line: Optional[List[str]] = None) -> int:
    """Runs a command line and returns the exit code of `hilbert-ring`."""
    given = list(sys.argv[1:] if line is None else line)
    words = list(given)
    as_json = take_json(words)
    try:
        return _run(_parser().parse_args(words), given, as_json)
    except HilbertRingError as error:
        failed(error.code, error.message, as_json, error.reason)
        return 2 if isinstance(error, ValueError) else 1
    except ValueError as error:
        failed("INVALID_ARGUMENT", str(error), as_json)
        return 2
    except OSError as error:
        failed(_CODES.get(error.errno or 0, "UNKNOWN"), str(error), as_json)
        return 1
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="hilbert-ring", description=str(__doc__).split("\n", maxsplit=1)[0])
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    draw = commands.add_parser("draw", help="SVG pictures of a job")
    draw_commands.add_commands(draw)
    bench = commands.add_parser("bench", help="benchmarks of a service")
    bench_commands.add_commands(bench)
    _slide_command.add_arguments(commands.add_parser("slide", help="a slide's file as .npy"))
    return parser


def _run(arguments: argparse.Namespace, given: List[str], as_json: bool) -> int:
    arguments.json = as_json
    if arguments.command == "bench":
        return bench_commands.bench(arguments, given)
    if arguments.command == "slide":
        return _slide_command.slide(arguments)
    return draw_commands.draw(arguments)


if __name__ == "__main__":
    end_by_signals()
    sys.exit(main())
