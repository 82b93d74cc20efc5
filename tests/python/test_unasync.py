"""tools/unasync.py makes the blocking client from the asyncio client."""
import runpy

from page_blocks import ROOT


def test_the_blocking_client_is_made_of_that_for_asyncio():
    unasync = runpy.run_path(str(ROOT / "tools/unasync.py"))
    made = unasync["blocking"](unasync["SOURCE"].read_text())
    assert made == unasync["MADE"].read_text(), "run tools/unasync.py"
