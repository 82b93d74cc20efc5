"""The docs' picture of the dashboard shows the panels that the dashboard has, with the queries that they have."""
import json
import os
import sys
import unittest
from pathlib import Path

try:
    from PIL import Image
except ImportError:
    print("skipped: python3-pil is not installed")
    raise SystemExit(77)

SOURCE = Path(os.environ["SOURCE_FOLDER"])
sys.path.append(str(SOURCE / "tools"))
import draw_dashboard  # noqa: E402


class DashboardPicture(unittest.TestCase):
    def test_the_picture_shows_the_dashboard(self):
        panels = json.loads(draw_dashboard.DASHBOARD.read_text())["panels"]
        with Image.open(SOURCE / "docs" / "dashboard.png") as picture:
            drawn = json.loads(picture.text["panels"])
            self.assertEqual(picture.size, draw_dashboard.Canvas(panels).image.size)
        self.assertEqual(drawn, draw_dashboard.drawn_panels(panels),
                         "tests/observability/dashboard_picture.py draws it again")


if __name__ == "__main__":
    unittest.main()
