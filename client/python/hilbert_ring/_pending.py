"""Writes files that get their names only when they are complete.

    with pending_files([tiles, coords]) as (first, second):  # new files in the same folders
        np.save(first, array)
        np.save(second, other)

No other file beside them is touched. client/cpp/pending_file.cc does the same.

    find_output("latest.svg").path          # "runs/7.svg", the link's target, which may not exist yet
    find_output("/dev/stdout").descriptor   # 1

A symbolic link stays: the output goes to its target. Pipes, devices and descriptors are written in place and never
replaced. client/cpp/pending_file.cc does the same.
"""
import errno
import os
import secrets
import stat
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Iterator, List, Optional, Sequence, Union

from hilbert_ring.errors import FailedPreconditionError, InvalidArgumentError


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


def pending_path(path: Path) -> Path:
    """Returns a random short name in the same folder, so that a long name of the file adds no limit."""
    return path.with_name(f".{secrets.token_hex(8)}.pending")


def open_pending(made: Path, path: Path) -> BinaryIO:
    """Creates a file, without following a link. Only its owner may read it if it is to replace another file."""
    mode = 0o666 if _mode_of(path) is None else 0o600
    return open(made, "xb", opener=lambda name, flags: os.open(name, flags, mode))


def take_name(made: Path, path: Path) -> None:
    """Renames the file over `path`. A replaced file's permissions stay."""
    mode = _mode_of(path)
    if mode is not None and mode != _mode_of(made):
        os.chmod(made, mode)
    os.replace(made, path)


def _mode_of(path: Path) -> Optional[int]:
    try:
        return stat.S_IMODE(os.lstat(path).st_mode) & 0o777
    except OSError:
        return None


@contextmanager
def pending_files(paths: Sequence[Path]) -> Iterator[List[BinaryIO]]:
    """Yields new files, which get their names in this order after all are on the disk.

    If the block fails, no file gets its name. paths: no symbolic links.
    """
    with ExitStack() as ended:
        files: List[BinaryIO] = []
        pending: List[Path] = []
        for path in paths:
            made = pending_path(path)
            try:
                files.append(ended.enter_context(open_pending(made, path)))
            except OSError as error:
                error.filename = os.fspath(path)
                raise
            ended.callback(made.unlink, missing_ok=True)
            pending.append(made)
        yield files
        for file in files:
            file.flush()
            os.fsync(file.fileno())
        for made, path in zip(pending, paths):
            take_name(made, path)
        for folder in {path.parent for path in paths}:
            sync_folder(folder)


def write_text(path: "Union[str, os.PathLike[str]]", text: str) -> None:
    """Replaces a file as a whole. Appends the text to places that are written in place.

    Raises:
        InvalidArgumentError: FILE_PATH: it is a folder, a socket or a disk.
        FailedPreconditionError: the pipe has no reader.
    """
    place = find_output(path)
    if place.in_place:
        with open(_open_in_place(place), "wb") as there:
            there.write(text.encode())
        return
    with pending_files([Path(place.path)]) as (file,):
        file.write(text.encode())


def sync_folder(folder: Path) -> None:
    """Writes new names in a folder to the disk. A folder that cannot be synced at all is no error."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EROFS):
            raise
    finally:
        os.close(descriptor)


def _open_in_place(place: OutputPlace) -> int:
    """Opens a place without waiting for the reader of a pipe."""
    if place.descriptor is not None:
        return os.dup(place.descriptor)
    mode = os.stat(place.path).st_mode
    if stat.S_ISDIR(mode) or stat.S_ISBLK(mode) or stat.S_ISSOCK(mode):
        raise InvalidArgumentError(f"{place.path}: cannot write: exists and is not a file",
                                   reason="FILE_PATH")
    try:
        # O_APPEND: it may be a file that another process has open, and its bytes stay.
        opened = os.open(place.path, os.O_WRONLY | os.O_APPEND | os.O_NOCTTY | os.O_NONBLOCK)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        raise FailedPreconditionError(f"{place.path}: cannot write: it has no reader") from None
    os.set_blocking(opened, True)
    return opened
