"""Runs every example of docs/python.md in order, as one program. A free port replaces the page's 8001."""
import importlib.util
import os
import re
from pathlib import Path

import numpy as np
import pytest

import hilbert_ring
from client_rig import certificate

PAGE = Path(__file__).resolve().parents[2] / "docs" / "python.md"
EXAMPLES = [(PAGE.read_text().count("\n", 0, match.start(2)), match[1] or "", match[2]) for match in
            re.finditer(r"(?:<!-- needs (.*?) -->\n)?```python\n(.*?)```", PAGE.read_text(), re.S)]


def missing(needs):
    return [name for name in re.split(r",\s*", needs)
            if name and importlib.util.find_spec(name) is None]


def test_the_page_has_examples():
    assert len(EXAMPLES) == PAGE.read_text().count("```python") > 10
    assert not missing("") and missing("numpy, no_such_module") == ["no_such_module"]


def test_the_readmes_example():
    readme = (PAGE.parent.parent / "README.md").read_text()
    code = re.search(r"```python\n(.*?)```", readme, re.S).group(1)
    rows = np.zeros((65_536, 1, 8), np.float32)
    exec(code, {"q": rows, "k": rows, "v": rows})


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    """The variables of the page's program, which has a folder and a service of its own."""
    folder = tmp_path_factory.mktemp("page")
    (folder / "token").write_text("secret-of-the-test\n")
    certificate(folder / "ca.pem", folder / "key.pem", "-subj", "/CN=test")
    service = hilbert_ring.local(workers=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        try:
            service.start()
            patch.setenv("HILBERT_RING_SERVER", service.server)
            yield {}
        finally:
            hilbert_ring.use(None)
            service.stop()


def test_the_packages_own_page(names):
    page = (PAGE.parent.parent / "client/python/README.md").read_text()
    code = re.search(r"```python\n(.*?)```", page, re.S).group(1).replace("localhost:8001", os.environ["HILBERT_RING_SERVER"])
    rows = np.ones((65_536, 1, 8), np.float32)
    ran = {"q": rows, "k": rows, "v": rows}
    exec(code, ran)
    ran["client"].close()
    assert np.allclose(ran["result"].out, 1)


@pytest.mark.parametrize("line, needs, code", EXAMPLES, ids=[f"line_{line}" for line, _, _ in EXAMPLES])
def test_example(names, line, needs, code):
    if missing(needs):
        pytest.skip(f"the example at line {line} needs {' and '.join(missing(needs))}: ./dev python-check")
    # The padding gives errors the page's line numbers.
    code = code.replace("localhost:8001", os.environ["HILBERT_RING_SERVER"])
    exec(compile("\n" * line + code, str(PAGE), "exec"), names)
