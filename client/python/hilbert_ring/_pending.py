"""Files that appear under their names only when they are complete.

    with pending_files([tiles, coords]) as (first, second):  # new files, beside those that get replaced
        np.save(first, array)
        np.save(second, other)

Nothing else is written, whatever lies beside them under whatever name. As client/cpp/pending_file.cc.
"""
import errno
import os
import secrets
import stat
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO, Iterator, List, Optional, Sequence, Union

from hilbert_ring._output_place import OutputPlace, find_output
from hilbert_ring.errors import FailedPreconditionError, InvalidArgumentError


def pending_path(path: Path) -> Path:
    """A name beside it that nobody knows, and that is short where its own is long."""
    return path.with_name(f".{secrets.token_hex(8)}.pending")


def open_pending(made: Path, path: Path) -> BinaryIO:
    """A new file, which follows no link. Where it is to replace one, its owner alone may read it until then."""
    mode = 0o666 if _mode_of(path) is None else 0o600
    return open(made, "xb", opener=lambda name, flags: os.open(name, flags, mode))


def take_name(made: Path, path: Path) -> None:
    """Replaces what has the name, whose permissions stay."""
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
    """They get their names, in this order, once all are on the disk; none does where the block fails. paths: no
    symbolic links."""
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
    """A file is replaced as a whole. What is written in place gets the text behind what is there.

    Raises:
        InvalidArgumentError: FILE_PATH: a folder, a socket or a disk.
        FailedPreconditionError: nobody reads the pipe.
    """
    place = find_output(path)
    if place.in_place:
        with open(_open_in_place(place), "wb") as there:
            there.write(text.encode())
        return
    with pending_files([Path(place.path)]) as (file,):
        file.write(text.encode())


def sync_folder(folder: Path) -> None:
    """A name that was given in it is on the disk. Folders that cannot be synced at all are no error."""
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
    """Nobody waits for the reader of a pipe."""
    if place.descriptor is not None:
        return os.dup(place.descriptor)
    mode = os.stat(place.path).st_mode
    if stat.S_ISDIR(mode) or stat.S_ISBLK(mode) or stat.S_ISSOCK(mode):
        raise InvalidArgumentError(f"{place.path}: cannot write: exists and is not a file",
                                   reason="FILE_PATH")
    try:
        # O_APPEND: it may be a file that another process has open, whose bytes stay.
        opened = os.open(place.path, os.O_WRONLY | os.O_APPEND | os.O_NOCTTY | os.O_NONBLOCK)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        raise FailedPreconditionError(f"{place.path}: cannot write: it has no reader") from None
    os.set_blocking(opened, True)
    return opened
