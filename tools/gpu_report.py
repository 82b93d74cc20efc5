"""The report of tools/gpu_check.py: Markdown that is whole after every step, whatever a program prints.

    report = Report(path, ["- GPU: ..."])
    report.begin("Smoke")                          # the file says what is under way
    report.add("Smoke", "passed", 14, 1.2, text)   # the file has it
    report.end()
"""
import os
import re
import time
from pathlib import Path

MOST_LINES = 60
MOST_LINE = 300
CONTROL = re.compile(r"\x1b\[[0-9;]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")


def cleaned(text):
    """Lines without control characters, none of them long."""
    return [CONTROL.sub("", line)[:MOST_LINE].rstrip() for line in text.split("\n")]


def fenced(text, lines=MOST_LINES):
    """The last lines of any text as a block of code that it cannot leave."""
    kept = [line for line in cleaned(text) if line][-lines:]
    if not kept:
        return ""
    longest = max((len(run) for line in kept for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([fence, *kept, fence])


def cell(text):
    return " ".join(cleaned(str(text))).replace("|", "/").replace("`", "'")


class Report:
    def __init__(self, path, head):
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.head = head
        self.summary, self.rows, self.parts, self.failed = [], [], [], []
        self.state = "nothing was run yet"
        self.write()

    def begin(self, title):
        self.state = f"{cell(title)} is under way since {time.strftime('%H:%M:%S', time.gmtime())} UTC"
        self.write()

    def add(self, title, verdict, passed, seconds, text=""):
        if verdict.startswith("FAILED"):
            self.failed.append(title)
        self.rows.append(f"| {cell(title)} | {cell(verdict)} | {passed or ''} | {seconds:.1f} |")
        if text:
            self.parts.append(f"## {cell(title)}\n\n{text}\n")
        self.state = "more is to come"
        self.write()

    def end(self, state="all that was to be run was run"):
        self.state = state
        self.write()

    def write(self):
        failed = "".join(f"\n- failed: {cell(title)}" for title in self.failed)
        text = "\n".join([
            "# GPU check\n", *self.head,
            f"- {len(self.rows)} steps, {len(self.failed)} failed; {self.state}{failed}\n",
            "| step | verdict | tests passed | seconds |", "| --- | --- | --- | --- |",
            *self.rows, "", *self.summary, *self.parts])
        # Whole at any moment, also where the disk is full or the machine goes away.
        beside = self.path.with_name(self.path.name + ".new")
        with open(beside, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, self.path)
