"""Installs the packages in a clean Debian 12, runs a job, builds the example, and checks that purge removes all files.

    unshare --mount --propagation private packages_check.py FOLDER_OF_PACKAGES CLEAN_ROOT

If CLEAN_ROOT does not exist, debootstrap makes it; the check does not write to it. An ordinary user runs the units' own
command lines in a separate network. Exit code 77: a probe found something missing.
"""
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import mean_job
from unit_file import command

MIRROR = os.environ.get("HILBERT_RING_MIRROR", "http://deb.debian.org/debian")
START_SECONDS = 60
USER = 61184  # the first id of systemd's DynamicUser
PORTS = ("8101", "8102")
PACKAGES = ("hilbert-ring-client", "hilbert-ring-dev", "hilbert-ring-server")
EXAMPLE = Path(__file__).parents[2] / "examples/attend"
SERVER = "127.0.0.1:8001"
GROUP, KEY = "hilbert-ring-secrets", "/etc/hilbert-ring/tls.key"


def run(*words, **options):
    done = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, **options)
    if done.returncode != 0:
        raise SystemExit(f"{words} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def skip(why):
    print(f"skipped: {why}")
    raise SystemExit(77)


def probe(clean):
    if os.geteuid() != 0:
        skip("making a root file system needs root")
    for program in ("debootstrap", "ip"):
        if not shutil.which(program):
            skip(f"{program} is not installed")
    if not (clean / "usr").exists():
        made = subprocess.run(["debootstrap", "--variant=minbase", "bookworm", clean, MIRROR],
                              capture_output=True, text=True)
        if made.returncode != 0:
            shutil.rmtree(clean, ignore_errors=True)
            skip(f"debootstrap failed: {made.stdout[-500:]}")


class CleanRoot:
    """A temporary copy of the clean root, with a network of its own."""

    def __init__(self, clean, work):
        self.path, self._network = work / "root", f"hilbert-ring-{os.getpid()}"
        run("mount", "-t", "tmpfs", "tmpfs", work)
        for name in ("root", "upper", "scratch"):
            (work / name).mkdir()
        run("mount", "-t", "overlay", "overlay", "-o",
            f"lowerdir={clean},upperdir={work}/upper,workdir={work}/scratch", self.path)
        run("mount", "--rbind", "/proc", self.path / "proc")
        shutil.copy("/etc/resolv.conf", self.path / "etc/resolv.conf")
        (self.path / "etc/hosts").write_text("127.0.0.1 localhost\n")
        run("ip", "netns", "add", self._network)
        run("ip", "-n", self._network, "link", "set", "lo", "up")

    def remove(self):
        subprocess.run(["ip", "netns", "delete", self._network], check=False)

    def as_root(self, *words):
        return run("env", "DEBIAN_FRONTEND=noninteractive", "chroot", self.path, *words)

    def as_user(self, *words):
        return ["ip", "netns", "exec", self._network, "chroot",
                f"--userspec={USER}:{USER}", str(self.path), *map(str, words)]


def install(root, packages):
    (root.path / "packages").mkdir()
    found = sorted(packages.glob("*.deb"))
    if [package.name.split("_")[0] for package in found] != list(PACKAGES):
        raise SystemExit(f"{packages} holds {found}, must hold a package each of {PACKAGES}")
    for package in found:
        shutil.copy(package, root.path / "packages")
    root.as_root("apt-get", "-qq", "update")
    root.as_root("apt-get", "-qq", "install", "-y", "--no-install-recommends",
                 *(f"/packages/{package.name}" for package in found))
    print(f"installed: {', '.join(package.name for package in found)}")


def files(root):
    listed = {path.lstrip("/") for path in root.as_root("dpkg", "-L", *PACKAGES).split()}
    return sorted(path for path in listed
                  if os.path.lexists(root.path / path) and not (root.path / path).is_dir())


def build_example(root):
    """Builds examples/attend against the package hilbert-ring-dev alone."""
    root.as_root("apt-get", "-qq", "install", "-y", "--no-install-recommends", "cmake", "g++",
                 "make", "pkg-config")
    shutil.copytree(EXAMPLE, root.path / "example")
    root.as_root("cmake", "-S", "/example", "-B", "/example/build")
    root.as_root("cmake", "--build", "/example/build")
    print("examples/attend: built against hilbert-ring-dev")


def give_credential(root):
    """Copies the join token to a folder like LoadCredential= does for a unit."""
    token = root.path / "etc/hilbert-ring/join.token"
    if token.stat().st_mode & 0o077 or len(token.read_text().strip()) < 16:
        raise SystemExit("the join token is readable by others than root, or too short")
    folder = root.path / "credentials"
    folder.mkdir()
    (folder / "join-token").write_text(token.read_text())
    os.chown(folder / "join-token", USER, USER)


def run_jobs(root):
    give_credential(root)
    job = root.path / "job"
    job.mkdir()
    os.chown(job, USER, USER)
    mean_job.write_inputs(job)
    credentials = "/credentials"
    commands = [command("hilbert-ring-coordinator.service", credentials=credentials)]
    commands += [command("hilbert-ring-worker@.service", port, credentials) for port in PORTS]
    processes = [subprocess.Popen(root.as_user(*words)) for words in commands]
    try:
        deadline = time.monotonic() + START_SECONDS
        while True:
            status = subprocess.run(root.as_user("hilbert-ring", "status"), capture_output=True, text=True)
            if status.returncode == 0 and all(f":{port}" in status.stdout for port in PORTS):
                break
            if time.monotonic() > deadline or any(p.poll() is not None for p in processes):
                raise SystemExit(f"no workers after {START_SECONDS} s:\n{status.stdout}{status.stderr}")
            time.sleep(0.2)
        print(run(*root.as_user("hilbert-ring", "attend", *mean_job.arguments("/job"))))
        wrong = mean_job.why_wrong(job / "out.npy")
        if wrong:
            raise SystemExit(wrong)
        print("examples/attend:", run(*root.as_user("/example/build/attend", SERVER)))
    finally:
        for process in processes:
            process.terminate()
        codes = [process.wait(30) for process in processes]
    if codes != [0] * len(codes):
        raise SystemExit(f"exit codes on SIGTERM: {codes}")


def remove(root, installed):
    root.as_root("install", "-o", "root", "-g", GROUP, "-m", "640", "/dev/null", KEY)
    root.as_root("apt-get", "-qq", "purge", "-y", *PACKAGES)
    left = [path for path in installed if os.path.lexists(root.path / path)]
    left += [path.name for path in (root.path / KEY[1:]).parent.iterdir() if path.name != "tls.key"]
    if left:
        raise SystemExit(f"after purge these files are left: {left}")
    owner = root.as_root("stat", "-c", "%G", KEY).strip()
    if owner != GROUP:
        raise SystemExit(f"after purge the group of {KEY} is {owner}, must be {GROUP}")


def main():
    packages, clean = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    probe(clean)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as work:
        root = CleanRoot(clean, Path(work))
        try:
            install(root, packages)
            installed = files(root)
            build_example(root)
            run_jobs(root)
            remove(root, installed)
        finally:
            root.remove()
            subprocess.run(["umount", "--recursive", "--lazy", work], check=False)
    print(f"packages: installed, ran jobs as an ordinary user; purge removed all {len(installed)} files, "
          "and an operator's key keeps its group")


if __name__ == "__main__":
    main()
