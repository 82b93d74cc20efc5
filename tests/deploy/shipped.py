"""The shipped command lines, adapted to hosts of a test."""
import shutil

from chart import container, render
from unit_file import UNITS, command

PORT = "8101"


def replaced(words, changes):
    for old, new in changes.items():
        words = [word.replace(old, new) for word in words]
    return words


class OfUnits:
    """Command lines of the units. Each host has an edited /etc/hilbert-ring."""

    def __init__(self, programs, work, token):
        self._programs, self._work = programs, work
        (work / "join-token").write_text(token)

    def _etc(self, host, edits):
        etc = self._work / f"etc{host}"
        etc.mkdir(exist_ok=True)
        for name in ("coordinator.conf", "worker.conf"):
            shutil.copy(UNITS / name, etc)
        for name, lines in edits.items():
            text = (etc / name).read_text()
            for key, value in lines.items():
                text = "\n".join(line for line in text.splitlines()
                                 if not line.startswith(f"{key}="))
                text += f"\n{key}={value}\n"
            (etc / name).write_text(text)
        return str(etc)

    def _words(self, unit, etc):
        return replaced(command(unit, PORT, str(self._work)),
                        {"/usr/bin": str(self._programs), "/etc/hilbert-ring": etc})

    def coordinator(self, host, address):
        etc = self._etc(host, {"coordinator.conf": {
            "grpc-host": address, "http-host": address, "membership-host": address}})
        return self._words("hilbert-ring-coordinator.service", etc), {}

    def worker(self, host, address, coordinator):
        etc = self._etc(host, {"worker.conf": {"host": address,
                                               "coordinator": f"{coordinator}:8003"}})
        return self._words("hilbert-ring-worker@.service", etc), {}


class OfManifests:
    """Command lines of the manifests."""

    def __init__(self, programs, work, token):
        (work / "join-token").write_text(token)
        self._programs, self._work, self._objects = programs, work, render()

    def _words(self, name, changes, address):
        found = container(self._objects, name)
        words = replaced(found["command"],
                         {"/etc/hilbert-ring/join": str(self._work), **changes})
        words[0] = str(self._programs / words[0])
        environment = {variable["name"]: variable.get("value", address)  # else: the pod's address
                       for variable in found.get("env", [])}
        return words, environment

    def coordinator(self, host, address):
        return self._words("coordinator", {}, address)

    def worker(self, host, address, coordinator):
        run = self._work / f"run{host}"
        run.mkdir(exist_ok=True)
        run.chmod(0o777)
        return self._words("worker", {"hilbert-ring-membership:": f"{coordinator}:",
                                      "/run/hilbert-ring": str(run)}, address)
