"""The tests in docs/testing.md exist, links of all pages lead to a page and heading, and a table has its fields."""
import re

from page_blocks import PAGES, ROOT

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


def test_files_of_code_in_pages_exist():
    folders = ("bench", "client", "engine", "examples", "server", "tests", "wire")
    code = {path.relative_to(ROOT).as_posix() for folder in folders for path in (ROOT / folder).rglob("*.*")}
    code.add("cublasLt.h")  # of CUDA
    found = {name for page in PAGES for name in re.findall(r"`([\w/]+\.(?:h|cc|cu|cuh))`", page.read_text())}
    assert len(found) > 50
    assert [name for name in sorted(found) if not any(path == name or path.endswith("/" + name) for path in code)] == []


def table():
    """Fields as the table writes them, those of the ordering with `ordering.` before them."""
    rows = (ROOT / "docs/job_spec.md").read_text().split("## Fields\n")[1].strip().split("\n\n")[0].splitlines()[2:]
    found = []
    for row in rows:
        names = re.findall(r"`([\w.]+)`", row.split("|")[1])
        prefix = "ordering." if names[0].startswith("ordering.") else ""
        found += [prefix + name.removeprefix("ordering.") for name in names]
    return found


def parsed():
    """Returns the parser's fields."""
    source = (ROOT / "engine/spec/job_spec_json.cc").read_text()
    spec, *objects = (re.findall(r'"(\w+)"', re.search(rf"{name}\(\) {{.*?{{(.*?)}};", source, re.S)[1])
                      for name in ("SpecFields", "OrderingFields", "AlibiFields"))
    found = set(spec)
    for name, fields in zip(("ordering", "alibi"), objects):
        found.remove(name)
        found.update(f"{name}.{field}" for field in fields)
    return found


def test_the_table_of_a_spec_and_its_parser_have_the_same_fields():
    assert len(table()) > 20 and len(table()) == len(set(table()))
    assert sorted(table()) == sorted(parsed())
