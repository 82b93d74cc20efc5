"""Finds the place of an output that is given by its path. client/cpp/output_place.cc does the same.

    find_output("latest.svg").path          # "runs/7.svg", the link's target, which may not exist yet
    find_output("/dev/stdout").descriptor   # 1

A symbolic link stays: the output goes to its target. Pipes, devices and descriptors are written in place and never
replaced.
"""
import errno
import os
import stat
from dataclasses import dataclass
from typing import Optional, Union

from hilbert_ring.errors import InvalidArgumentError

_MOST_LINKS = 40  # the system's own limit


@dataclass(frozen=True)
class OutputPlace:
    path: str  # no symbolic link, unless in_place
    descriptor: Optional[int] = None  # of this process
    in_place: bool = False  # no regular file, so that it must not be replaced


def find_output(path: "Union[str, os.PathLike[str]]") -> OutputPlace:
    """Follows links to the place of an output. Opens no file."""
    at = os.fspath(path)
    for _ in range(_MOST_LINKS + 1):
        descriptor = _descriptor_of(at)
        if descriptor is not None:
            return OutputPlace(at, descriptor, in_place=True)
        try:
            mode = os.lstat(at).st_mode
            if not stat.S_ISLNK(mode):
                return OutputPlace(at, in_place=not stat.S_ISREG(mode))
            if _lies_in_proc(at):  # such a link's target is no path
                return OutputPlace(at, in_place=True)
            at = os.path.join(os.path.dirname(at), os.readlink(at))
        except (OSError, ValueError) as error:
            if getattr(error, "errno", None) != errno.ENAMETOOLONG:
                return OutputPlace(at)  # opening it gives the error
            raise InvalidArgumentError(f"{at}: cannot write: File name too long") from None
    raise InvalidArgumentError(f"{os.fspath(path)}: cannot write: more than {_MOST_LINKS} symbolic links")


def _descriptor_of(path: str) -> Optional[int]:
    """Returns the descriptor of this process whose link in /proc the path is; None: it is no such link."""
    folder, name = os.path.split(path)
    if not (name.isascii() and name.isdigit()):
        return None
    own = os.path.realpath("/proc/self/fd")
    return int(name) if os.path.isdir(own) and os.path.realpath(folder or ".") == own else None


def _lies_in_proc(path: str) -> bool:
    return os.stat(os.path.dirname(path) or ".").st_dev == os.stat("/proc/self").st_dev
