"""Runs the shipped units under systemd, in their whole sandbox, with the package's settings and scripts.

    unshare --mount --pid --fork --propagation private systemd_check.py FOLDER_OF_PROGRAMS

systemd is the first process of a namespace with a network of its own, on a temporary copy of this machine's root file
system. Jobs run, tokens and the certificate are replaced without a restart, and processes are restarted under load.
Exit code 77: a probe found something missing.
"""
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import mean_job

SOURCE = Path(__file__).parents[2]
START_SECONDS = 60
LOOK_SECONDS = 3  # processes look at files once a second
LONG, JOBS = 32768, 3  # tokens of the jobs that run while processes are restarted
COORDINATOR, WORKERS = "hilbert-ring-coordinator", ("hilbert-ring-worker@8101", "hilbert-ring-worker@8102")
TRIAL = "srv/trial"  # of the root; systemd has its own /tmp
PROGRAMS = ("hilbert-ring", "hilbert-ring-coordinator", "hilbert-ring-worker")
GROUP = "hilbert-ring-secrets"
ETC = "/etc/hilbert-ring"
SETTINGS = {
    "coordinator.conf": (f"tls-cert={ETC}/tls.crt", f"tls-key={ETC}/tls.key", f"auth-token-file={ETC}/tokens",
                         "membership-host=127.0.0.1"),
    "worker.conf": (f"http-tls-cert={ETC}/tls.crt", f"http-tls-key={ETC}/tls.key", f"auth-token-file={ETC}/tokens")}
TOKENS = ("the-first-token-0123456789", "the-second-token-0123456789")


def skip(why):
    print(f"skipped: {why}")
    raise SystemExit(77)


def run(*words):
    done = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{words} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def probe():
    if os.geteuid() != 0:
        skip("mounting file systems needs root")
    for program in ("systemctl", "openssl", "ip", "nsenter"):
        if not shutil.which(program):
            skip(f"{program} is not installed")
    if not Path("/lib/systemd/systemd").exists():
        skip("systemd is not installed")


def make_root(work):
    """Mounts an overlay over this machine's root, without the file systems that are mounted below it."""
    run("mount", "-t", "tmpfs", "tmpfs", work)
    root = work / "root"
    for name in ("root", "upper", "scratch"):
        (work / name).mkdir()
    run("mount", "-t", "overlay", "overlay", "-o",
        f"lowerdir=/,upperdir={work}/upper,workdir={work}/scratch", root)
    run("mount", "-t", "proc", "proc", root / "proc")
    run("mount", "--rbind", "/dev", root / "dev")
    run("mount", "--rbind", "/sys", root / "sys")
    run("mount", "-t", "tmpfs", "tmpfs", root / "sys/fs/cgroup")
    for name in ("run", "tmp"):
        run("mount", "-t", "tmpfs", "tmpfs", root / name)
    run("mount", "--make-rshared", root)  # like systemd's own root, so that units see their credentials
    return root


def install(root, programs):
    """Installs programs, units and settings like the package does."""
    for name in PROGRAMS:
        shutil.copy(programs / name, root / "usr/bin")
    shutil.rmtree(root / "etc/systemd/system", ignore_errors=True)
    units, etc = root / "etc/systemd/system", root / ETC.lstrip("/")
    units.mkdir(parents=True)
    shutil.rmtree(etc, ignore_errors=True)
    etc.mkdir()
    for unit in (SOURCE / "deploy/systemd").glob("*.service"):
        shutil.copy(unit, units)
    for name, lines in SETTINGS.items():
        (etc / name).write_text((SOURCE / "deploy/systemd" / name).read_text() + "\n".join(lines) + "\n")
    (root / TRIAL).mkdir(parents=True)
    (units / "trial.target").write_text("[Unit]\nDescription=a target without units\n")
    shutil.copytree(SOURCE / "deploy/debian", root / TRIAL / "debian")
    run("chroot", root, "sh", f"/{TRIAL}/debian/postinst", "configure")


class Systemd:
    """systemd as the first process of a namespace, and commands in that namespace."""

    def __init__(self, root):
        self._root = root
        self._process = subprocess.Popen(
            ["unshare", "--mount", "--pid", "--net", "--fork", "--kill-child", "--propagation", "unchanged",
             "sh", "-c", f"ip link set lo up && mount -t proc proc {root}/proc && exec chroot {root} env container=trial "
             "/lib/systemd/systemd --system --unit=trial.target --log-target=null --show-status=no"],
            stdin=subprocess.DEVNULL)
        self._pid = self._first()
        self._await_running()

    def _first(self):
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
            if children and "systemd" in Path(f"/proc/{children[0]}/comm").read_text():
                return children[0]
            time.sleep(0.1)
        raise SystemExit("systemd did not start")

    def _await_running(self):
        deadline = time.monotonic() + START_SECONDS
        while (state := self.tries("systemctl", "is-system-running")).stdout.strip() != "running":
            if time.monotonic() > deadline:
                raise SystemExit(f"systemd is not ready: {state.stdout}{state.stderr}")
            time.sleep(0.1)

    def command(self, *words):
        return ["nsenter", "--target", self._pid, "--mount", "--pid", "--net", "chroot", str(self._root), *map(str, words)]

    def output(self, *words):
        return run(*self.command(*words))

    def tries(self, *words):
        return subprocess.run(self.command(*words), capture_output=True, text=True)

    def process_ids(self):
        return [self.output("systemctl", "show", "--property=MainPID", "--value", unit).strip()
                for unit in (COORDINATOR, *WORKERS)]

    def end(self):
        self._process.kill()
        self._process.wait()


def replace(root, name, text):
    """Replaces a file like docs/deploy.md: the new file gets the group and is renamed over the old."""
    new = root / ETC.lstrip("/") / f"{name}.new"
    new.write_text(text)
    run("chroot", root, "chgrp", GROUP, f"{ETC}/{name}.new")
    new.chmod(0o640)
    new.rename(new.with_suffix(""))


def replace_tokens(root, token):
    replace(root, "tokens", f'{{"name": "lab", "role": "admin", "token": "{token}"}}\n')


def replace_certificate(root, work, name):
    key, cert = work / "key", work / "cert"
    run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", 30, "-subj",
        f"/CN={name}", "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", cert)
    for file, target in ((key, "tls.key"), (cert, "tls.crt")):
        replace(root, target, file.read_text())
    shutil.copy(cert, root / TRIAL / f"{name}.crt")


def client(command, token, ca, *arguments):
    return ["env", f"HILBERT_RING_TOKEN={token}", "hilbert-ring", command, "--server=localhost:8001", "--tls",
            f"--ca=/{TRIAL}/{ca}.crt", *arguments]


def await_status(systemd, token, ca):
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        status = systemd.tries(*client("status", token, ca))
        if status.returncode == 0 and all(f":{unit.split('@')[1]}" in status.stdout for unit in WORKERS):
            return
        time.sleep(0.2)
    raise SystemExit(f"no workers after {START_SECONDS} s:\n{status.stdout}{status.stderr}\n"
                     + systemd.tries("systemctl", "--no-pager", "status", COORDINATOR, *WORKERS).stdout)


def check_job(systemd, root, token, ca):
    systemd.output(*client("attend", token, ca, *mean_job.arguments(f"/{TRIAL}/job")))
    wrong = mean_job.why_wrong(root / TRIAL / "job/out.npy")
    if wrong:
        raise SystemExit(wrong)


def check_sandbox(systemd):
    for pid in systemd.process_ids():
        status = systemd.output("cat", f"/proc/{pid}/status")
        for line in ("CapEff:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"):
            if line not in status:
                raise SystemExit(f"process {pid} has not {line!r}:\n{status}")
        if "\nUid:\t0\t" in status:
            raise SystemExit(f"process {pid} is root's")


def check_replaced_files(systemd, root, work):
    before = systemd.process_ids()
    replace_tokens(root, TOKENS[1])
    replace_certificate(root, work, "second")
    time.sleep(LOOK_SECONDS)
    refused = systemd.tries(*client("status", TOKENS[0], "second"))
    if "AUTH_TOKEN" not in refused.stderr:
        raise SystemExit(f"the old token is not refused: {refused.stdout}{refused.stderr}")
    check_job(systemd, root, TOKENS[1], "second")
    if systemd.process_ids() != before:
        raise SystemExit("a process was restarted")
    print("tokens and certificate were replaced, no process restarted")


def check_restart(systemd, root):
    inputs = root / TRIAL / "long"
    inputs.mkdir()
    mean_job.write_inputs(inputs, LONG, LONG)
    outputs = [root / TRIAL / f"out{i}" for i in range(JOBS)]
    for output in outputs:
        output.mkdir()
    jobs = [subprocess.Popen(systemd.command(*client("attend", TOKENS[1], "second", *mean_job.arguments(
        f"/{TRIAL}/long", f"/{TRIAL}/{output.name}", LONG))), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for output in outputs]
    time.sleep(1)
    for unit in (*WORKERS, COORDINATOR):
        systemd.output("systemctl", "restart", unit)
    for job, output in zip(jobs, outputs):
        printed = job.communicate(timeout=2 * START_SECONDS)[0]
        wrong = mean_job.why_wrong(output / "out.npy", LONG, LONG) if job.returncode == 0 else printed
        if wrong:
            raise SystemExit(f"a job was lost: {wrong}")
    print("workers and coordinator were restarted, no job lost")


def main():
    probe()
    programs = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        work = Path(folder)
        root = make_root(work)
        install(root, programs)
        replace_tokens(root, TOKENS[0])
        replace_certificate(root, work, "first")
        (root / TRIAL / "job").mkdir()
        mean_job.write_inputs(root / TRIAL / "job")
        systemd = Systemd(root)
        try:
            systemd.output("systemctl", "start", COORDINATOR, *WORKERS)
            await_status(systemd, TOKENS[0], "first")
            check_job(systemd, root, TOKENS[0], "first")
            check_sandbox(systemd)
            check_replaced_files(systemd, root, work)
            check_restart(systemd, root)
            systemd.output("systemctl", "stop", COORDINATOR, *WORKERS)
            states = systemd.output("systemctl", "show", "--property=Result", "--value", COORDINATOR, *WORKERS).split()
            if set(states) != {"success"}:
                raise SystemExit(f"results of the units are {states}, must be success")
            systemd.output("sh", f"/{TRIAL}/debian/postrm", "purge")
            if GROUP in (root / "etc/group").read_text():
                raise SystemExit(f"the group {GROUP} is left")
        finally:
            systemd.end()
            subprocess.run(["umount", "--recursive", "--lazy", work], check=False)
    print("systemd: the units ran jobs in their sandbox")


if __name__ == "__main__":
    main()
