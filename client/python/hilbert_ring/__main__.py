"""hilbert-ring draw|bench|slide: pictures of jobs, benchmarks of a service, and slides in HDF5.

`hilbert-ring` hands these over to `python3 -m hilbert_ring`.
"""
import argparse
import sys
from typing import List, Optional

from hilbert_ring import _slide_command
from hilbert_ring.bench import commands as bench_commands
from hilbert_ring.draw import commands as draw_commands
from hilbert_ring.errors import HilbertRingError


def main(line: Optional[List[str]] = None) -> int:
    """Runs a command line; returns the exit code, as of `hilbert-ring`."""
    parser = argparse.ArgumentParser(prog="hilbert-ring",
                                     description=str(__doc__).split("\n", maxsplit=1)[0])
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    draw = commands.add_parser("draw", help="SVG pictures of a job")
    draw_commands.add_commands(draw)
    bench = commands.add_parser("bench", help="benchmarks of a service")
    bench_commands.add_commands(bench)
    _slide_command.add_arguments(commands.add_parser("slide", help="a slide's HDF5 as .npy"))
    given = sys.argv[1:] if line is None else line
    arguments = parser.parse_args(given)
    try:
        if arguments.command == "bench":
            return bench_commands.bench(arguments, given)
        if arguments.command == "slide":
            return _slide_command.slide(arguments)
        return draw_commands.draw(arguments)
    except ValueError as error:  # InvalidArgumentError too
        print(f"hilbert-ring: {error}", file=sys.stderr)
        return 2
    except (HilbertRingError, OSError) as error:
        print(f"hilbert-ring: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
