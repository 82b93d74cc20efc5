"""Every example of docs/python.md, in their order, in one program.

The service has a free port, which stands in for the page's 8001.
"""
import importlib.util
import re
import subprocess
from pathlib import Path

import numpy as np

import hilbert_ring

PAGE = Path(__file__).resolve().parents[2] / "docs" / "python.md"
EXAMPLES = re.findall(r"(?:<!-- needs (.*?) -->\n)?```python\n(.*?)```", PAGE.read_text(), re.S)


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


def test_examples(monkeypatch, tmp_path):
    service = hilbert_ring.local(workers=2)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "token").write_text("secret-of-the-test\n")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                    "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=test", "-days", "1",
                    "-keyout", "key.pem", "-out", "ca.pem"], check=True, capture_output=True)
    names = {}
    skipped = []
    try:
        service.start()
        monkeypatch.setenv("HILBERT_RING_SERVER", service.server)
        for needs, code in EXAMPLES:
            if missing(needs):
                skipped.append(missing(needs))
                continue
            line = PAGE.read_text().count("\n", 0, PAGE.read_text().index(code))
            code = code.replace("localhost:8001", service.server)  # a port that is free
            exec(compile("\n" * line + code, str(PAGE), "exec"), names)
    finally:
        hilbert_ring.use(None)
        service.stop()
    if skipped:
        print(f"{len(skipped)} examples were left out, for want of {skipped}")
