"""Scratch files beneath a service's data root that lies in memory (tmpfs): arrays are written to
them, and outputs are mapped, by a client on the service's host.

    scratch = make_scratch(folder, service_user)   # a new folder in the caller's folder of the root
    path = scratch.write("q", blocks)              # beneath that folder
    data = scratch.take("out", size)               # the end of a file, which has no name any more
    scratch.close()                                # removes it with what is in it

A scratch folder is FOLDER/hilbert-ring-scratch-USER/WORD, and its client holds a lock of it. One that
nobody holds is of a client that was killed: the user's next client removes it. As
client/cpp/scratch.cc.
"""
import errno
import fcntl
import mmap
import os
import secrets
import stat
from contextlib import contextmanager, suppress
from threading import Event
from typing import Iterable, Iterator, Optional, Tuple

import numpy as np
from numpy.typing import NDArray

_PREFIX = "hilbert-ring-scratch-"
_TRIES = 100  # against clients that remove a folder between two calls of this one
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class NoScratch(Exception):
    """Why no scratch file can be made. Of a full disk and what else a user may cure, `told`."""

    def __init__(self, why: str, told: bool = False) -> None:
        super().__init__(why)
        self.told = told


def lies_in_memory(folder: str) -> bool:
    """Whether it is of a tmpfs."""
    try:
        device = os.stat(folder).st_dev
        wanted = f"{os.major(device)}:{os.minor(device)}"
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as mounts:
            for line in mounts:
                mount, _, system = line.partition(" - ")
                if mount.split()[2] == wanted:
                    return system.split()[0] == "tmpfs"
    except (OSError, IndexError):
        pass
    return False


def check_room(folder: str, size: int) -> None:
    """Raises NoScratch where its disk has not `size` bytes, or the machine not twice as much: the
    workers have them, too."""
    with suppress(OSError):
        system = os.statvfs(folder)
        free = system.f_bavail * system.f_frsize
        if system.f_blocks and free < size:
            raise NoScratch(f"{folder} has {free} bytes, they take {size}", told=True)
    available = _memory_available()
    if available is not None and available < 2 * size:
        raise NoScratch(f"the machine has {available} bytes of memory, they take twice {size}",
                        told=True)


def _memory_available() -> Optional[int]:
    with suppress(OSError, ValueError, IndexError):
        with open("/proc/meminfo", encoding="ascii") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) << 10
    return None


class Scratch:
    """A folder of its own, for one thread at a time; `stop` is for any."""

    def __init__(self, beneath: str, users: int, folder: int, file_mode: int) -> None:
        """beneath: its path from the caller's folder; users, folder: descriptors, of the user's folder
        and of its own, whose lock it has."""
        self._beneath = beneath
        self._users = users
        self._folder = folder
        self._file_mode = file_mode
        self._stopped = Event()

    def path(self, name: str) -> str:
        """Of a file in it, beneath the caller's folder."""
        return f"{self._beneath}/{name}"

    def write(self, name: str, blocks: Iterable[memoryview]) -> str:
        """Its path.

        Raises:
            NoScratch: the disk is full, or the file cannot be written; it is stopped.
        """
        with _explained(name):
            file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC,
                           self._file_mode, dir_fd=self._folder)
            try:
                os.fchmod(file, self._file_mode)
                for block in blocks:
                    while len(block) > 0:
                        if self._stopped.is_set():
                            raise NoScratch("the job has ended")
                        block = block[os.write(file, block):]
            finally:
                os.close(file)
        return self.path(name)

    def take(self, name: str, size: int) -> "NDArray[np.uint8]":
        """The last `size` bytes of a file, which loses its name; what is written to them is the
        caller's alone.

        Raises:
            NoScratch: it is not there, or shorter.
        """
        with _explained(name):
            file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._folder)
            try:
                whole = os.fstat(file).st_size
                if whole < size:
                    raise NoScratch(f"{name} has {whole} bytes, expected {size}", told=True)
                mapped = mmap.mmap(file, whole, access=mmap.ACCESS_COPY)
                os.unlink(name, dir_fd=self._folder)
            finally:
                os.close(file)
        return np.frombuffer(mapped, np.uint8, size, whole - size)

    def stop(self) -> None:
        self._stopped.set()

    def close(self) -> None:
        """Removes it. May be called again."""
        folder, self._folder = self._folder, -1
        if folder < 0:
            return
        _remove(self._users, self._beneath.rpartition("/")[2], folder)
        os.close(folder)
        own = os.readlink(f"/proc/self/fd/{self._users}")
        os.close(self._users)
        with suppress(OSError):  # others of this user have folders in it
            os.rmdir(own)


@contextmanager
def _explained(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise NoScratch(f"{name}: {error.strerror}", told=True) from None


def make_scratch(folder: str, service_user: int) -> Scratch:
    """In the caller's folder of a data root, such that the service can read and write in it.

    Args:
        service_user: number of the user whose processes the service's are.

    Raises:
        NoScratch: that cannot be.
    """
    folder_mode, file_mode = _modes(folder, service_user)
    users_name = f"{_PREFIX}{os.geteuid()}"
    with _explained(os.path.join(folder, users_name)):
        for _ in range(_TRIES):
            users = _open_users(os.path.join(folder, users_name), folder_mode)
            made = None
            try:
                _remove_leftovers(users)
                word = secrets.token_hex(8)
                made = _make_locked(users, word, folder_mode)
                if made is not None:
                    return Scratch(f"{users_name}/{word}", users, made, file_mode)
            finally:
                if made is None:
                    os.close(users)
    raise NoScratch(f"{folder}: other clients remove what this one makes")


def _modes(folder: str, service_user: int) -> Tuple[int, int]:
    """Of folders and of files: for this user and the service alone."""
    if service_user in (os.geteuid(), 0):
        return 0o700, 0o600
    mode = os.stat(folder).st_mode
    if mode & stat.S_ISGID and mode & stat.S_IRWXG == stat.S_IRWXG:
        return 0o2770, 0o660  # the folder's group is that of both
    raise NoScratch(f"{folder}: the service is another user's, and no group is given to its files")


def _open_users(path: str, mode: int) -> int:
    try:
        os.mkdir(path, mode)
        os.chmod(path, mode)  # whatever the umask says
    except FileExistsError:
        pass
    users = os.open(path, _FOLDER)
    if os.fstat(users).st_uid != os.geteuid():
        os.close(users)
        raise NoScratch(f"{path}: is another user's")
    return users


def _make_locked(users: int, word: str, mode: int) -> Optional[int]:
    """None: another client has removed it, or the user's folder, meanwhile."""
    folder = -1
    try:
        os.mkdir(word, mode, dir_fd=users)
        folder = os.open(word, _FOLDER, dir_fd=users)
        os.fchmod(folder, mode)
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.stat(word, dir_fd=users, follow_symlinks=False).st_ino == os.fstat(folder).st_ino:
            return folder
    except (FileNotFoundError, BlockingIOError):
        pass
    if folder >= 0:
        os.close(folder)
    return None


def _remove_leftovers(users: int) -> None:
    for name in os.listdir(users):
        with suppress(OSError):
            folder = os.open(name, _FOLDER, dir_fd=users)
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(users, name, folder)
            finally:
                os.close(folder)


def _remove(users: int, name: str, folder: int) -> None:
    """Twice where need be: the service may make an output, of a job that ends, between the two calls."""
    for _ in range(2):
        for file in os.listdir(folder):
            with suppress(OSError):
                os.unlink(file, dir_fd=folder)
        try:
            os.rmdir(name, dir_fd=users)
            return
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                return
