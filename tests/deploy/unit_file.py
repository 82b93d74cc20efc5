"""What a shipped systemd unit runs."""
import shlex
from pathlib import Path

UNITS = Path(__file__).parents[2] / "deploy/systemd"


def directives(name):
    """All values of each directive: those of a unit may come again."""
    found = {}
    for line in (UNITS / name).read_text().splitlines():
        if "=" in line and not line.startswith(("#", "[")):
            key, value = line.split("=", 1)
            found.setdefault(key, []).append(value)
    return found


def command(name, instance="", credentials="/run/credentials"):
    """The words of ExecStart, with %i and %d put in."""
    (line,) = directives(name)["ExecStart"]
    return shlex.split(line.replace("%i", instance).replace("%d", credentials))
