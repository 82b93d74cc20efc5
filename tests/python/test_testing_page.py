"""docs/testing.md names tests that are there: files by their path, or by a name that no other file has; cases by suite
and name. docs/status.md alone says what has run where, and its evidence is there."""
import re
from pathlib import Path

from page_blocks import PAGES

ROOT = Path(__file__).resolve().parents[2]
FILES = {path.relative_to(ROOT).as_posix(): path for path in (ROOT / "tests").rglob("*") if path.is_file()}
PAGE = (ROOT / "docs/testing.md").read_text()
STATUS = ROOT / "docs/status.md"


def test_files():
    named = set(re.findall(r"[\w/]*_test\.(?:cc|py|cu)|\btest_\w+\.py|\btests/[\w/]+\.\w+", PAGE))
    assert len(named) > 70
    names = [path.rsplit("/", 1)[1] for path in FILES]
    assert [name for name in sorted(named) if name not in FILES and names.count(name) != 1] == []


def test_cases():
    cases, suites = set(), set()
    for path in FILES.values():
        if path.suffix == ".cc":
            text = path.read_text()
            cases |= set(re.findall(r"\bTEST(?:_[FP])?\(\s*(\w+),\s*(\w+)\)", text))
            suites |= set(re.findall(r"\bINSTANTIATE_TEST_SUITE_P\(\s*(\w+),", text))
        elif path.name == "CMakeLists.txt":
            suites |= set(re.findall(r"\bNAME (\w+)\.", path.read_text()))
    suites |= {suite for suite, _ in cases}
    named = set(re.findall(r"\b([A-Z]\w+)\.([A-Z]\w+|\*(?!\*))", PAGE))
    assert len(named) > 100
    assert [case for case in sorted(named) if case not in cases and (case[1] != "*" or case[0] not in suites)] == []


def test_evidence_of_the_status_page():
    targets = re.findall(r"\]\(([^)#]+)[^)]*\)", STATUS.read_text())
    assert len(targets) > 8
    assert [target for target in targets if not (STATUS.parent / target).exists()] == []


def test_no_other_page_says_what_has_run():
    pages = [page for page in PAGES if page != STATUS] + [ROOT / "CHANGELOG.md", ROOT / "bench/page.md"]
    said = re.compile(r"not\s+(?:been\s+)?run\s+on|not\s+on\s+a\s+GPU|not\s+tried\s+on|\*emulated|\*faked|"
                      r"\bH[12]00\s+has\s+run|No\s+cluster\s+has|run\s+on\s+an?\s+H[12]00")
    assert [(page.name, found) for page in pages for found in said.findall(page.read_text())] == []
