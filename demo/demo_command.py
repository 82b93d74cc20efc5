"""Errors and exit codes of the demos' programs."""
import signal
import sys
from pathlib import Path

import hilbert_ring

FOLDER = Path(__file__).resolve().parent / "out"  # default folder of pictures


class DemoError(Exception):
    """An error that is printed without a traceback."""


def stop_on_signal(*_):
    raise KeyboardInterrupt


def exit_code_of(demonstrate, arguments):
    """Runs demonstrate(arguments) and returns the exit code: 1 after an error, 130 after a signal."""
    signal.signal(signal.SIGTERM, stop_on_signal)
    try:
        demonstrate(arguments)
    except (DemoError, hilbert_ring.HilbertRingError, OSError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("demo: stopped", file=sys.stderr)
        return 130
    return 0
