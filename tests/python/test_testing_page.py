"""The tests in docs/testing.md exist, with a path or a unique name. Links of all pages lead to a page and heading."""
import re
from pathlib import Path

from page_blocks import PAGES

ROOT = Path(__file__).resolve().parents[2]
FILES = {path.relative_to(ROOT).as_posix(): path for path in (ROOT / "tests").rglob("*") if path.is_file()}
PAGE = (ROOT / "docs/testing.md").read_text()


def test_files():
    named = set(re.findall(r"[\w/]*_test\.(?:cc|py|cu)|\btest_\w+\.py|\btests/[\w/]+\.\w+", PAGE))
    assert len(named) > 10
    names = [path.rsplit("/", 1)[1] for path in FILES]
    assert [name for name in sorted(named) if name not in FILES and names.count(name) != 1] == []


def anchors(page):
    """Returns GitHub's anchors of a page's headings."""
    titles = re.findall(r"^#+ (.*)$", re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.S | re.M), re.M)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def test_links_between_files_lead_somewhere():
    broken = []
    for page in PAGES:
        for target, anchor in re.findall(r"\]\((?!https?:|mailto:)([^)#]*)#?([^)]*)\)", page.read_text()):
            to = page.parent / target if target else page
            if not to.exists() or anchor and anchor not in anchors(to):
                broken.append((page.name, target, anchor))
    assert broken == []
