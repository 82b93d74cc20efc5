"""Reads shipped systemd units."""
import shlex
from pathlib import Path

UNITS = Path(__file__).parents[2] / "deploy/systemd"


def directives(name):
    """Returns all values of each directive, because a directive may come several times."""
    found = {}
    for line in (UNITS / name).read_text().splitlines():
        if "=" in line and not line.startswith(("#", "[")):
            key, value = line.split("=", 1)
            found.setdefault(key, []).append(value)
    return found


def command(name, instance="", credentials="/run/credentials"):
    (line,) = directives(name)["ExecStart"]
    return shlex.split(line.replace("%i", instance).replace("%d", credentials))
