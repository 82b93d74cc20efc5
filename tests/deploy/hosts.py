"""Hosts made of network namespaces on one switch.

    with Hosts(3) as hosts:
        hosts.start(1, ["program", "--host=" + hosts.address(1)], environment)

Making them needs root; processes run as an ordinary user.
"""
import os
import shutil
import subprocess

USER = 65532


def ip(*words):
    subprocess.run(["ip", *map(str, words)], check=True, capture_output=True, text=True)


def why_not():
    """Returns why hosts cannot be made on this machine; empty: they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for program in ("ip", "setpriv"):
        if not shutil.which(program):
            return f"{program} is not installed"
    probe = f"ring-probe-{os.getpid()}"
    try:
        ip("netns", "add", probe)
        ip("-n", probe, "link", "add", "name", "probe0", "type", "veth",
           "peer", "name", "probe1")
    except subprocess.CalledProcessError as error:
        return f"no network namespaces with veth pairs: {error.stderr.strip()}"
    finally:
        subprocess.run(["ip", "netns", "delete", probe], capture_output=True)
    return ""


class Hosts:
    def __init__(self, number):
        self._names = [f"ring-{os.getpid()}-{host}" for host in range(number)]
        self._switch = f"ring-{os.getpid()}-switch"

    def __enter__(self):
        try:
            ip("netns", "add", self._switch)
            ip("-n", self._switch, "link", "add", "name", "switch", "type", "bridge")
            ip("-n", self._switch, "link", "set", "switch", "up")
            for host, name in enumerate(self._names):
                ip("netns", "add", name)
                ip("-n", self._switch, "link", "add", "name", f"to{host}", "type", "veth", "peer", "name",
                   "eth0", "netns", name)
                ip("-n", self._switch, "link", "set", f"to{host}", "master", "switch", "up")
                ip("-n", name, "address", "add", f"{self.address(host)}/24", "dev", "eth0")
                ip("-n", name, "link", "set", "eth0", "up")
                ip("-n", name, "link", "set", "lo", "up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in [*self._names, self._switch]:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)

    @staticmethod
    def address(host):
        return f"10.79.0.{host + 1}"

    def start(self, host, words, environment=None, **options):
        return subprocess.Popen(
            ["ip", "netns", "exec", self._names[host], "setpriv", f"--reuid={USER}",
             f"--regid={USER}", "--clear-groups", "--no-new-privs", "--bounding-set=-all",
             *map(str, words)], env={**os.environ, **(environment or {})}, **options)
