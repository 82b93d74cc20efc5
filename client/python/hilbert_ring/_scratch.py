"""Scratch files of a client on the service's host, in a data root that lies in memory (tmpfs).

    scratch = make_scratch(folder, service_user)   # a new folder in the caller's folder of the root
    path = scratch.write("q", blocks)              # relative to the caller's folder
    data = scratch.take("out", size)               # maps the end of a file and unlinks it
    if not scratch.keep():                         # leaves the folder to the next job, after a job that ended well
        scratch.close()                            # removes it

Fresh pages of a tmpfs, and freeing them, take longer than the copy to them. The process's next
job writes over the files of the last one if it comes soon.

A scratch folder is FOLDER/hilbert-ring-scratch-USER/WORD, and its client locks it. An unlocked folder is of a killed
client; the user's next client removes it. client/cpp/scratch.cc does the same.
"""
import atexit
import errno
import fcntl
import mmap
import os
import secrets
import stat
from contextlib import contextmanager, suppress
from threading import Event, Lock, Timer
from typing import Dict, Iterable, Iterator, Optional, Tuple

import numpy as np
from numpy.typing import NDArray

_PREFIX = "hilbert-ring-scratch-"
_TRIES = 100  # other clients may remove a folder between two calls of this client
KEEP_SECONDS = 0.5
KEPT_BYTES = 256 << 20  # the files of a larger job are not kept
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class NoScratch(Exception):
    """Scratch files cannot be used. warn: the user may fix the cause, such as a full disk."""

    def __init__(self, why: str, warn: bool = False) -> None:
        super().__init__(why)
        self.warn = warn


def lies_in_memory(folder: str) -> bool:
    """Returns whether a folder is on a tmpfs."""
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
    """Raises NoScratch if the disk has less than `size` bytes, or the machine's memory less than twice `size`.

    The workers hold the bytes a second time.
    """
    with suppress(OSError):
        system = os.statvfs(folder)
        free = system.f_bavail * system.f_frsize
        if system.f_blocks and free < size:
            raise NoScratch(f"{folder} has {free} bytes, must have {size}", warn=True)
    available = _memory_available()
    if available is not None and available < 2 * size:
        raise NoScratch(f"the machine has {available} bytes of memory, must have {2 * size}", warn=True)


def _memory_available() -> Optional[int]:
    with suppress(OSError, ValueError, IndexError):
        with open("/proc/meminfo", encoding="ascii") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) << 10
    return None


class Scratch:
    """A scratch folder. Any thread may call `stop`; one thread at a time may call the other methods."""

    def __init__(self, root: str, beneath: str, users: int, folder: int, file_mode: int) -> None:
        """Args:
            root: the caller's folder.
            beneath: path of the scratch folder, relative to the caller's folder.
            users: descriptor of hilbert-ring-scratch-USER.
            folder: descriptor of the scratch folder, which holds the lock.
            file_mode: mode of its files.
        """
        self._root = root
        self._beneath = beneath
        self._users = users
        self._folder = folder
        self._file_mode = file_mode
        self._stopped = Event()
        self._sizes: Dict[str, int] = {}  # by name of a written file
        self._timer: Optional[Timer] = None

    def path(self, name: str) -> str:
        return f"{self._beneath}/{name}"

    def write(self, name: str, blocks: Iterable[memoryview]) -> str:
        """Writes a file and returns its path.

        Raises:
            NoScratch: the disk is full, the file cannot be written, or `stop` was called.
        """
        with _explained(name):
            fresh = 0 if name in self._sizes else os.O_EXCL
            file = os.open(name, os.O_WRONLY | os.O_CREAT | fresh | os.O_NOFOLLOW | os.O_CLOEXEC,
                           self._file_mode, dir_fd=self._folder)
            try:
                os.fchmod(file, self._file_mode)
                size = 0
                for block in blocks:
                    while len(block) > 0:
                        if self._stopped.is_set():
                            raise NoScratch("the job has ended")
                        written = os.write(file, block)
                        block = block[written:]
                        size += written
                os.ftruncate(file, size)
                self._sizes[name] = size
            finally:
                os.close(file)
        return self.path(name)

    def take(self, name: str, size: int) -> "NDArray[np.uint8]":
        """Maps the last `size` bytes of a file as private memory, and unlinks the file.

        Raises:
            NoScratch: the file is missing or shorter.
        """
        with _explained(name):
            file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._folder)
            try:
                whole = os.fstat(file).st_size
                if whole < size:
                    raise NoScratch(f"{name} has {whole} bytes, must have {size}", warn=True)
                mapped = mmap.mmap(file, whole, access=mmap.ACCESS_COPY)
                os.unlink(name, dir_fd=self._folder)
            finally:
                os.close(file)
        return np.frombuffer(mapped, np.uint8, size, whole - size)

    def stop(self) -> None:
        self._stopped.set()

    def bytes(self) -> int:
        """Returns the bytes of files that `write` wrote, also for an earlier job."""
        return sum(self._sizes.values())

    def keep(self) -> bool:
        """Leaves the folder to the process's next job for a moment. False: the caller still has it.

        Not kept: a large folder, and one beside another that is kept already.
        """
        if self._stopped.is_set() or self.bytes() > KEPT_BYTES:
            return False
        with _lock:
            if _kept.setdefault(self._root, self) is not self:
                return False
            self._timer = Timer(KEEP_SECONDS, self._expire)
            self._timer.daemon = True
            self._timer.start()
        return True

    def reuse(self) -> bool:
        """Returns whether the folder, which was kept, still lies in its place."""
        assert self._timer is not None
        self._timer.cancel()
        self._stopped.clear()
        try:
            there = os.stat(os.path.join(self._root, self._beneath), follow_symlinks=False)
            return os.path.samestat(there, os.fstat(self._folder))
        except OSError:
            return False

    def _expire(self) -> None:
        with _lock:
            if _kept.get(self._root) is not self:
                return
            del _kept[self._root]
        self.close()

    def close(self) -> None:
        """Removes the folder. May be called again."""
        folder, self._folder = self._folder, -1
        if folder < 0:
            return
        _remove(self._users, self._beneath.rpartition("/")[2], folder)
        os.close(folder)
        own = os.readlink(f"/proc/self/fd/{self._users}")
        os.close(self._users)
        with suppress(OSError):  # the user's other clients may have folders in it
            os.rmdir(own)


_lock = Lock()
_kept: Dict[str, Scratch] = {}  # by the caller's folder


def _take_kept(folder: str) -> Optional[Scratch]:
    with _lock:
        kept = _kept.pop(folder, None)
    if kept is None or kept.reuse():
        return kept
    kept.close()
    return None


@atexit.register
def _close_kept() -> None:
    for folder in list(_kept):
        kept = _take_kept(folder)
        if kept is not None:
            kept.close()


def _forget_kept() -> None:
    global _lock  # the parent's may be held
    _lock = Lock()
    _kept.clear()


os.register_at_fork(after_in_child=_forget_kept)


@contextmanager
def _explained(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise NoScratch(f"{name}: {error.strerror}", warn=True) from None


def make_scratch(folder: str, service_user: int) -> Scratch:
    """Returns a kept or new scratch folder in the caller's folder of a data root, which the service can read and write.

    Args:
        service_user: id of the service's user.

    Raises:
        NoScratch: no such folder can be made.
    """
    folder_mode, file_mode = _modes(folder, service_user)
    kept = _take_kept(folder)
    if kept is not None:
        return kept
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
                    return Scratch(folder, f"{users_name}/{word}", users, made, file_mode)
            finally:
                if made is None:
                    os.close(users)
    raise NoScratch(f"{folder}: other clients remove what this one makes")


def _modes(folder: str, service_user: int) -> Tuple[int, int]:
    """Returns the modes of folders and files, which only this user and the service may use."""
    if service_user in (os.geteuid(), 0):
        return 0o700, 0o600
    mode = os.stat(folder).st_mode
    if mode & stat.S_ISGID and mode & stat.S_IRWXG == stat.S_IRWXG:
        return 0o2770, 0o660  # new files take the folder's group, which has both users
    raise NoScratch(f"{folder}: the service is another user's, and no group is given to its files")


def _open_users(path: str, mode: int) -> int:
    try:
        os.mkdir(path, mode)
        os.chmod(path, mode)  # mkdir applies the umask
    except FileExistsError:
        pass
    users = os.open(path, _FOLDER)
    if os.fstat(users).st_uid != os.geteuid():
        os.close(users)
        raise NoScratch(f"{path}: is another user's")
    return users


def _make_locked(users: int, word: str, mode: int) -> Optional[int]:
    """Makes and locks a folder; None: another client removed it or its parent before the lock."""
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
    """Removes a folder. Tries twice, because the service may create an ending job's output between two calls."""
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
