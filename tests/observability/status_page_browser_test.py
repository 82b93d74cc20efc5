"""The status page in a browser, Chromium, behind tokens.

STATUS_PAGE_PICTURE=docs/status_page.png keeps the picture that the last test takes.
"""
import json
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

import skipping
from running_service import await_true, stop_with_parent
from service_under_test import ServiceUnderTest
from status_page_test import Page

BROWSER = next(filter(None, map(shutil.which, (
    "chromium", "chromium-headless-shell", "chromium-browser", "google-chrome"))), None)
BROWSER_SECONDS = 120
LONG = 65536  # tokens of the jobs that run and wait
TOKENS = {"lab": "token-of-the-lab-0123456789", "clinic": "token-of-the-clinic-0123456789",
          "eye": "token-of-the-eye-0123456789"}
COMPUTE = (0x1a, 0x7f, 0x37)  # the bars' green


def write_tokens(folder):
    path = Path(folder) / "tokens"
    path.write_text("".join(
        json.dumps({"name": name, "role": "observe" if name == "eye" else "submit", "token": token}) + "\n"
        for name, token in TOKENS.items()))
    return path


@unittest.skipUnless(BROWSER, "no chromium is installed: `./dev test all` installs chromium-headless-shell")
class StatusPageInABrowser(unittest.TestCase):
    def browse(self, service, caller, *arguments):
        """Returns the page's HTML. The token is the password of HTTP's basic authentication."""
        done = subprocess.run(
            [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
             f"--user-data-dir={service.folder}/browser", "--window-size=1180,800", *arguments,
             f"http://{caller}:{TOKENS.get(caller, 'unknown')}@127.0.0.1:{service.ports['http_port']}/"],
            capture_output=True, text=True, timeout=BROWSER_SECONDS)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def submit(self, service, caller):
        """Starts a job that runs, or waits, until the service ends."""
        command = [os.environ["CLIENT_BINARY"], "attend", f"--server={service.address}",
                   f"--segments={LONG}", "--dilations=1", "--job-id=slide-7", "--max-attempts=1",
                   *(f"--{name}={service.folder}/long.npy" for name in "qkv"),
                   f"--out={service.folder}/{caller}.npy"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                   env={**os.environ, "HILBERT_RING_TOKEN": TOKENS[caller]},
                                   preexec_fn=stop_with_parent)
        self.addCleanup(process.wait, 60)
        self.addCleanup(process.kill)

    def test_shows_whose_jobs_run_wait_and_have_ended(self):
        with tempfile.TemporaryDirectory() as folder, \
                ServiceUnderTest(folder, arguments=[f"--auth-token-file={write_tokens(folder)}"]) as service:
            for caller, tokens in (("lab", 8192), ("clinic", 4096), ("lab", 16384)):
                service.attend(tokens, [f"--job-id={caller}-{tokens}"],
                               environment={"HILBERT_RING_TOKEN": TOKENS[caller]})
            self.write_long(service.folder)
            self.submit(service, "lab")
            await_true("the first runs", lambda: "computing" in self.seen(service, "eye"))
            self.submit(service, "clinic")
            await_true("the second waits", lambda: self.seen(service, "eye").count("slide-7") >= 2)
            page = Page(self.seen(service, "eye"))
            of_lab = Page(self.seen(service, "lab"))
            unknown = self.seen(service, "unknown")
            picture = service.folder / "page.png"
            self.browse(service, "eye", f"--screenshot={picture}")
            self.check_picture(picture)
        jobs = [row[:2] for row in page.rows["Jobs"][1:]]
        self.assertCountEqual(jobs, [["slide-7", "lab"], ["slide-7", "clinic"]])
        self.assertEqual([row[:3] for row in page.rows["Last jobs"][1:]],
                         [["lab-16384", "lab", "OK"], ["clinic-4096", "clinic", "OK"],
                          ["lab-8192", "lab", "OK"]])
        self.assertEqual({row[1] for heading in ("Jobs", "Last jobs") for row in of_lab.rows[heading][1:]},
                         {"lab"}, "the role submit sees its own jobs")
        self.assertNotIn("slide-7", unknown)

    def seen(self, service, caller):
        return self.browse(service, caller, "--dump-dom")

    def write_long(self, folder):
        import numpy
        numpy.save(folder / "long.npy", numpy.zeros((LONG, 4, 32), "f4"))

    def check_picture(self, path):
        try:
            from PIL import Image
        except ImportError:
            return  # the page's elements were read
        with Image.open(path) as image:
            colors = dict((color[:3], count) for count, color in image.getcolors(1 << 24))
        self.assertGreater(colors.get(COMPUTE, 0), 100, "no bar of a job's compute is seen")
        if wanted := os.environ.get("STATUS_PAGE_PICTURE"):
            shutil.copy(path, wanted)


if __name__ == "__main__":
    skipping.main()
