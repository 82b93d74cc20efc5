"""Parses and reports like `hilbert-ring`: an error suggests the nearest name, and is JSON under --json.

    parser = Parser(prog="hilbert-ring")          # parse_args raises InvalidArgumentError
    failed("INVALID_ARGUMENT", "no", as_json)     # prints {"error": {"code": "INVALID_ARGUMENT", "message": "no"}}
"""
import argparse
import json
import math
import re
import signal
import sys
from difflib import get_close_matches
from typing import Any, Iterable, List, NoReturn, Optional

from hilbert_ring.errors import InvalidArgumentError

_OF_AN_OPTION = "argument "  # argparse's errors begin with it before an option's name
_WHOLE = re.compile("-?[0-9]+")
_DECIMAL = re.compile("[0-9+.eE-]+")  # float also takes "1_0", "inf" and spaces
_MOST_WORKERS = 4096


class Parser(argparse.ArgumentParser):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{"allow_abbrev": False, **options})
        self._negative_number_matcher = re.compile("-[0-9,.]+")  # a list of numbers is a value, too

    def error(self, message: str) -> NoReturn:
        message = message[len(_OF_AN_OPTION):] if message.startswith(_OF_AN_OPTION + "-") else message
        raise InvalidArgumentError(f"{message}; {self.prog} --help lists the options")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Reports an unknown option first, because argparse would report a missing argument instead."""
        words = sys.argv[1:] if args is None else list(args)
        for word in words:
            if word == "--" or (self._subparsers is not None and not word.startswith("-")):
                break  # the next words are a subcommand's, or positional
            name = word.split("=", maxsplit=1)[0]
            if word.startswith("--") and name not in self._option_string_actions:
                self.error(f"unknown option {name}{hint(name, self._option_string_actions)}")
        found, unknown = super().parse_known_args(words, namespace)
        if unknown:
            self.error(f"unexpected argument {unknown[0]}")
        return found, unknown

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:
            self.error(f"unknown {str(action.metavar).lower()} {value}{hint(value, action.choices)}; "
                       f"known are {', '.join(action.choices)}")
        super()._check_value(action, value)


def end_by_signals() -> None:
    """Makes signals exit the program, which then removes pending files. Ignored signals (nohup) stay ignored."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda taken, _: sys.exit(128 + taken))


def hint(name: str, known: Iterable[str]) -> str:
    """Returns "; the nearest known one is ...", or "" if no name is near."""
    near = get_close_matches(name, known, 1)
    return f"; the nearest known one is {near[0]}" if near else ""


def failed(code: str, message: str, as_json: bool, reason: Optional[str] = None) -> None:
    """Prints an error on stderr like the C++ commands."""
    if not as_json:
        print(f"hilbert-ring: {code}: {message}", file=sys.stderr)
        return
    error = {"code": code, "reason": reason, "message": message}
    if reason is None or reason == code:
        del error["reason"]
    print(json.dumps({"error": error}), file=sys.stderr)


def warned(message: str, as_json: bool) -> None:
    """Prints a warning on stderr like the C++ commands."""
    print(json.dumps({"warning": message}) if as_json else f"hilbert-ring: warning: {message}", file=sys.stderr)


def take_json(line: List[str]) -> bool:
    """Removes --json from the command's words. Returns whether it was there."""
    found = "--json" in line
    line[:] = [word for word in line if word != "--json"]
    return found


def whole_number(text: str) -> int:
    """Raises ArgumentTypeError with the errors of wire/flag_values.cc, like all functions below."""
    if not _WHOLE.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text}, must be a whole number in decimal digits")
    value = int(text)
    if not -(1 << 63) <= value < 1 << 63:
        raise argparse.ArgumentTypeError(f"{text} is beyond 64 bits")
    return value


def whole_numbers(text: str) -> List[int]:
    """Reads numbers with commas between them."""
    return [whole_number(part) for part in text.split(",")]


def sides(text: str) -> List[Optional[int]]:
    """Reads the two sides of a window."""
    try:
        found = [None if part == "none" else whole_number(part) for part in text.split(",")]
    except argparse.ArgumentTypeError:
        found = []
    if len(found) != 2:
        raise argparse.ArgumentTypeError(f"{text}, must be LEFT,RIGHT, each a whole number or none; an ordering has "
                                         "--ordering-window")
    return found


def number(text: str) -> float:
    """Reads a finite number."""
    try:
        value = float(text) if _DECIMAL.fullmatch(text) else math.nan
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text}, must be a finite number in decimal digits")
    return value


def workers(text: str) -> int:
    value = whole_number(text)
    if not 1 <= value <= _MOST_WORKERS:
        raise argparse.ArgumentTypeError(f"Value {value} not in range 1 to {_MOST_WORKERS}")
    return value
