"""The systemd units and their settings fit the programs."""
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from program_flags import ProgramFlags
from unit_file import UNITS, command, directives

BUILD = Path(os.environ["HILBERT_RING_BUILD"])
DEBIAN = UNITS.parent / "debian"
UNIT_OF = {"coordinator": "hilbert-ring-coordinator.service",
           "worker": "hilbert-ring-worker@.service"}
ENDING_SECONDS = 10  # from the end of the jobs to the end of the process
MOST_EXPOSED = 20  # of 100, in systemd-analyze's exposure


class Units(unittest.TestCase):
    def test_every_flag_and_every_key_is_known(self):
        flags = ProgramFlags(BUILD / "bin")
        for name, unit in UNIT_OF.items():
            program = f"hilbert-ring-{name}"
            words = command(unit, instance="8101")
            self.assertEqual(flags.unknown([program, *words[1:]]), [], unit)
            lines = (UNITS / f"{name}.conf").read_text().splitlines()
            keys = [f"--{line}" for line in lines if line and not line.startswith("#")]
            self.assertEqual(flags.unknown([program, *keys]), [], f"{name}.conf")

    def test_the_settings_are_those_that_the_package_keeps(self):
        kept = (DEBIAN / "conffiles").read_text().split()
        read = [word.removeprefix("--config=") for unit in UNIT_OF.values()
                for word in command(unit) if word.startswith("--config=")]
        self.assertEqual(sorted(kept), sorted(read))

    def test_the_unit_waits_longer_than_the_process_drains(self):
        flags = ProgramFlags(BUILD / "bin")
        for name, unit in UNIT_OF.items():
            (stop,) = directives(unit)["TimeoutStopSec"]
            drains = float(flags.default(f"hilbert-ring-{name}", "exit-timeout"))
            self.assertGreaterEqual(int(stop), drains + ENDING_SECONDS, unit)

    def test_both_units_are_one_user_so_that_memory_is_shared(self):
        users = {tuple(directives(unit)["User"]) for unit in UNIT_OF.values()}
        self.assertEqual(len(users), 1)
        for unit in UNIT_OF.values():
            self.assertNotIn("PrivateUsers", directives(unit))

    def test_what_the_settings_propose_is_known(self):
        flags = ProgramFlags(BUILD / "bin")
        for name in UNIT_OF:
            proposed = re.findall(r"^# ([a-z][a-z-]*=\S+)$", (UNITS / f"{name}.conf").read_text(), re.MULTILINE)
            self.assertGreater(len(proposed), 3)
            self.assertEqual(flags.unknown([f"hilbert-ring-{name}", *(f"--{line}" for line in proposed)]), [])

    def test_processes_have_no_rights(self):
        for unit in UNIT_OF.values():
            given = directives(unit)
            for key, value in (("CapabilityBoundingSet", ""), ("DynamicUser", "yes"),
                               ("NoNewPrivileges", "yes"), ("ProtectSystem", "strict"),
                               ("ProtectHome", "yes")):
                self.assertEqual(given.get(key), [value], f"{unit}: {key}")

    @unittest.skipUnless(shutil.which("systemctl"), "systemctl is not installed")
    def test_no_link_of_an_enabled_unit_survives_the_package(self):
        with tempfile.TemporaryDirectory() as folder:
            root, stub = Path(folder) / "root", Path(folder) / "bin"
            shutil.copytree(UNITS, root / "lib/systemd/system")
            links = root / "etc/systemd/system/multi-user.target.wants"
            links.parent.mkdir(parents=True)
            systemctl = [shutil.which("systemctl"), f"--root={root}"]
            enabled = ["hilbert-ring-coordinator.service", "hilbert-ring-worker@8101.service",
                       "hilbert-ring-worker@8102.service"]
            subprocess.run([*systemctl, "enable", *enabled], check=True, capture_output=True)
            self.assertEqual(sorted(link.name for link in links.iterdir()), enabled)
            stub.mkdir()
            (stub / "systemctl").write_text(
                f'#!/bin/sh\n[ "$1" = disable ] || exit 0\nexec {" ".join(systemctl)} "$@"\n')
            (stub / "systemctl").chmod(0o755)
            for action, left in (("upgrade", enabled), ("remove", [])):
                subprocess.run(["sh", DEBIAN / "prerm", action], check=True, capture_output=True,
                               env={**os.environ, "PATH": f"{stub}:{os.environ['PATH']}"})
                self.assertEqual(sorted(link.name for link in links.parent.rglob("*.service")), left)

    @unittest.skipUnless(shutil.which("systemd-analyze"), "systemd-analyze is not installed")
    def test_systemd_takes_them_and_finds_them_closed(self):
        with tempfile.TemporaryDirectory() as root:
            units = Path(root) / "lib/systemd/system"
            shutil.copytree(UNITS, units)
            programs = Path(root) / "usr/bin"
            programs.mkdir(parents=True)
            for name in UNIT_OF:
                (programs / f"hilbert-ring-{name}").touch(mode=0o755)
            # The units depend on these units of the system.
            for target in ("network-online.target", "multi-user.target", "sysinit.target",
                           "shutdown.target", "basic.target", "system.slice", "-.slice"):
                (units / target).write_text("[Unit]\n")
            for unit in UNIT_OF.values():
                verified = subprocess.run(
                    ["systemd-analyze", "verify", "--man=no", f"--root={root}", unit],
                    capture_output=True, text=True)
                self.assertEqual((verified.returncode, verified.stderr), (0, ""))
                rated = subprocess.run(
                    ["systemd-analyze", "security", "--offline=true",
                     f"--threshold={MOST_EXPOSED}", units / unit], capture_output=True, text=True)
                self.assertEqual(rated.returncode, 0, rated.stdout[-300:])


if __name__ == "__main__":
    unittest.main()
