"""Reads numbers of a command line with the syntax and errors of wire/flag_values.cc.

    parser.add_argument("--tokens", type=whole_number)
"""
import argparse
import math
import re
from typing import List

_WHOLE = re.compile("-?[0-9]+")
_DECIMAL = re.compile("[0-9+.eE-]+")  # float also takes "1_0", "inf" and spaces
_MOST_WORKERS = 4096


def whole_number(text: str) -> int:
    """Raises ArgumentTypeError, like all functions below."""
    if not _WHOLE.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text}, must be a whole number in decimal digits")
    value = int(text)
    if not -(1 << 63) <= value < 1 << 63:
        raise argparse.ArgumentTypeError(f"{text} is beyond 64 bits")
    return value


def whole_numbers(text: str) -> List[int]:
    """Reads numbers with commas between them."""
    return [whole_number(part) for part in text.split(",")]


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
