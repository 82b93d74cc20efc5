"""docs/testing.md names tests that are there: files by their path, or by a name that no other file has; cases by suite
and name."""
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILES = {path.relative_to(ROOT).as_posix(): path for path in (ROOT / "tests").rglob("*") if path.is_file()}
PAGE = (ROOT / "docs/testing.md").read_text()


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
