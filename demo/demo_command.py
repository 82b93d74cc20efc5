"""What each demo does as a command: errors that a user should read, and how it ends."""
import signal
import sys
from pathlib import Path

import hilbert_ring

FOLDER = Path(__file__).resolve().parent / "out"  # for pictures, unless the user names another


class DemoError(Exception):
    """Something that the user should read: no traceback."""


def stop_on_signal(*_):
    raise KeyboardInterrupt


def exit_code_of(demonstrate, arguments):
    """Of demonstrate(arguments): 1 after an error, 130 where it was stopped."""
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
