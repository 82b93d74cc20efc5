"""Writes a benchmark's results: a table as Markdown, figures as JSON, a plot as SVG."""
import json
import os
import platform
import re
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from hilbert_ring._pending import write_text
from hilbert_ring.draw.svg import Svg


@dataclass
class Report:
    """The results of a benchmark.

    Attributes:
        name: name of the files.
        title: title of page and plot.
        columns: (key in a row, heading, function that formats a value), in order.
        rows: figures by key.
        notes: sentences below the table.
        picture: the plot, if any.
    """

    name: str
    title: str
    columns: Sequence[Tuple[str, str, Callable[[Any], str]]]
    rows: List[Dict[str, Any]] = field(default_factory=list)
    notes: List[str] = field(default_factory=list)
    picture: Optional[Svg] = None

    def save(self, folder: Path, line: Sequence[str]) -> None:
        """Writes NAME.md, NAME.json and NAME.svg. line: the command's words."""
        folder.mkdir(parents=True, exist_ok=True)
        machine = machine_words()
        figures = {"benchmark": self.name, "command": list(line), "machine": machine,
                   "date": time.strftime("%Y-%m-%d"), "rows": self.rows, "notes": self.notes}
        write_text(folder / f"{self.name}.json", json.dumps(figures, indent=1) + "\n")
        page = [f"# {self.title}", "", f"`hilbert-ring {' '.join(line)}`, "
                f"{figures['date']}, {machine}.", "", *self.table(), ""]
        page += [f"- {note}" for note in self.notes]
        if self.picture is not None:
            page += ["", f"![{self.title}]({self.name}.svg)"]
            write_text(folder / f"{self.name}.svg", self.picture.document())
        write_text(folder / f"{self.name}.md", "\n".join(page).rstrip() + "\n")

    def table(self) -> List[str]:
        lines = ["| " + " | ".join(heading for _, heading, _ in self.columns) + " |",
                 "| " + " | ".join("---" for _ in self.columns) + " |"]
        for row in self.rows:
            cells = ["" if row.get(key) is None else write(row[key])
                     for key, _, write in self.columns]
            lines.append("| " + " | ".join(cells) + " |")
        return lines


def machine_words() -> str:
    """Returns the processor, cores and load of the client's machine."""
    try:
        found = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    except OSError:
        found = None
    cores = len(os.sched_getaffinity(0))
    return (f"{found.group(1) if found else platform.machine()}, {cores} cores, load "
            f"{os.getloadavg()[0]:.1f}")


def count(value: float) -> str:
    return f"{value:,.0f}"


def milliseconds(seconds: float) -> str:
    value = seconds * 1e3
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def mebibytes(value: float) -> str:
    return f"{value / 2**20:,.1f}"


def percent(part: float) -> str:
    return f"{part:.1%}"
