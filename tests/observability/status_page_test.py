"""The page at / of the coordinator's HTTP port."""
import tempfile
import unittest
from html.parser import HTMLParser

from service_under_test import ServiceUnderTest

VOID = {"meta", "br", "link", "img", "input", "hr"}


class Page(HTMLParser):
    """Rows of tables by heading. Asserts that each element closes in order."""

    def __init__(self, html):
        super().__init__()
        self.open, self.rows, self.attributes, self.heading = [], {}, [], None
        self.feed(html)
        self.close()
        assert not self.open, f"not closed: {self.open}"

    def handle_starttag(self, tag, attrs):
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.setdefault(self.heading, []).append([])
        elif tag in ("td", "th"):
            self.rows[self.heading][-1].append("")

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open}"
        self.open.pop()

    def handle_data(self, data):
        if self.open and self.open[-1] == "h2":
            self.heading = data
        elif "td" in self.open or "th" in self.open:
            self.rows[self.heading][-1][-1] += data


class StatusPage(unittest.TestCase):
    def test_shows_workers_rings_and_the_last_jobs(self):
        with tempfile.TemporaryDirectory() as folder, ServiceUnderTest(folder) as service:
            report = service.attend(tokens=2048)
            name = "<script>alert('1')</script>"
            service.attend(tokens=1024, arguments=[f"--job-id={name}"])
            html = service.get("/")
        self.assertNotIn("<script", html)
        page = Page(html)
        self.assertIn("ready", html)
        workers = {row[0]: row for row in page.rows["Workers"][1:]}
        self.assertEqual(set(workers), {worker["worker"] for worker in report["workers"]})
        self.assertEqual({row[1] for row in workers.values()}, {"up"})
        self.assertEqual(page.rows["Rings"][1][2], "2")
        last = page.rows["Last jobs"][1:]
        self.assertEqual([row[:3] + row[4:6] for row in last],
                         [[name, "", "OK", "1024", "2"], [report["job_id"], "", "OK", "2048", "2"]])
        widths = [value for tag, attribute, value in page.attributes
                  if (tag, attribute) == ("span", "style")]
        self.assertEqual(len(widths), 2 + 5 * len(last), "memory of each worker, phases of each job")
        for _, attribute, value in page.attributes:
            self.assertNotIn(attribute, ("src", "href", "action"), "nothing from elsewhere")


if __name__ == "__main__":
    unittest.main()
