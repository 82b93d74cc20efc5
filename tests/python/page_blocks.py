"""Blocks of code in the pages. A fence gives the language, and how a test runs a shell's commands.

    ```sh run              as it stands, in the page's order; jobs of docs/cli.md and the tutorial with fewer tokens
    ```sh run=service      the same, with a service that the test starts
    ```sh run=elsewhere    with the test's own ports, hosts and folders in place of the page's
    ```sh service          starts the service, which the test does in its own way
    ```sh needs=A,B        not run, because a machine of tests may lack A and B (see docs/testing.md)
"""
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md")),
         ROOT / "deploy/helm/hilbert-ring/README.md", ROOT / "client/python/README.md"]
LANGUAGES = {"sh", "python", "cpp", "json", "yaml", "ini", "proto", "text", "mermaid", "promql"}
RUN = {"run", "run=service", "run=elsewhere", "service"}


@dataclass(frozen=True)
class Block:
    page: str       # its path below the repository
    line: int       # of the fence, from 1
    language: str
    tag: str        # the rest of the fence
    code: str

    @property
    def needs(self):
        """The needs of a block that is not run."""
        return self.tag.removeprefix("needs=").split(",") if self.tag.startswith("needs=") else []


def blocks(page):
    """Returns a page's blocks. page: path below the repository."""
    found, opened = [], None
    for number, line in enumerate((ROOT / page).read_text().splitlines(), 1):
        fence = re.match(r"( *)```(.*)$", line)
        if fence and opened is None:
            language, _, tag = fence[2].strip().partition(" ")
            opened = (number, len(fence[1]), language, tag, [])
        elif fence:
            first, _, language, tag, lines = opened
            found.append(Block(str(page), first, language, tag, "".join(lines)))
            opened = None
        elif opened is not None:
            opened[4].append(line[min(opened[1], len(line) - len(line.lstrip())):] + "\n")
    if opened is not None:
        raise ValueError(f"{page}:{opened[0]}: a fence that does not end")
    return found


def all_blocks():
    return [block for page in PAGES for block in blocks(page.relative_to(ROOT))]
