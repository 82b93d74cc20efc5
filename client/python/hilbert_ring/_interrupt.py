"""Ends calls that other threads than the main one wait for, such as a thread pool's, after Ctrl-C.

    watch(call)      # cancels the call after an interrupt
    interrupted()    # True: begin no more calls

Python raises KeyboardInterrupt in the main thread alone. That thread then joins the others, in the executor's `with`
block or as the interpreter ends, and would wait until their jobs are done.
"""
import os
import sys
import threading
from typing import Any, Dict, Optional, Set

LOOK_SECONDS = 0.1
# Modules in which the main thread waits for other threads: of threads and executors, and of asyncio's loop.
_WAITS = ("threading", "selectors")

_lock = threading.RLock()  # a finaliser may end a call at any moment
_calls: Set[Any] = set()  # under way, guarded by _lock
_watcher: Optional[threading.Thread] = None  # guarded by _lock


def _forget() -> None:
    """Resets a forked process: its parent has the calls, and the thread that may hold the lock."""
    global _lock, _calls, _watcher
    _lock, _calls, _watcher = threading.RLock(), set(), None


os.register_at_fork(after_in_child=_forget)


def interrupted() -> bool:
    """Returns whether the main thread was interrupted and waits for other threads. False in the main thread."""
    main = threading.main_thread()
    if threading.current_thread() is main:
        return False
    frame = sys._current_frames().get(main.ident or 0)
    if frame is None or frame.f_globals.get("__name__") not in _WAITS:
        return False
    while frame.f_back is not None:
        frame = frame.f_back
    if frame.f_code.co_name == "_shutdown" and frame.f_globals.get("__name__") == "threading":
        return getattr(sys, "last_type", None) is KeyboardInterrupt  # the program's last exception
    return _handles_interrupt(main)


def _handles_interrupt(thread: threading.Thread) -> bool:
    """Returns whether the thread is in a `with`, `except` or `finally` block after KeyboardInterrupt.

    False before Python 3.10.
    """
    exceptions: Dict[Optional[int], Any] = getattr(sys, "_current_exceptions", dict)()
    handled = exceptions.get(thread.ident)
    # Python 3.12 has the exception, earlier versions a tuple with its type.
    return isinstance(handled, KeyboardInterrupt) or isinstance(handled, tuple) and handled[0] is KeyboardInterrupt


def watch(call: Any) -> None:
    """Cancels a call or future of gRPC if the program is interrupted, until `leave`.

    No effect in the main thread, whose calls end by the exception.
    """
    global _watcher
    if threading.current_thread() is threading.main_thread():
        return
    with _lock:
        _calls.add(call)
        if _watcher is None:
            _watcher = threading.Thread(target=_look, name="hilbert-ring-interrupt", daemon=True)
            _watcher.start()


def leave(call: Any) -> None:
    with _lock:
        _calls.discard(call)


def _look() -> None:
    """Runs while there are calls."""
    global _watcher
    wait = threading.Event()
    while True:
        wait.wait(LOOK_SECONDS)
        ending = interrupted()
        with _lock:
            if not _calls:
                _watcher = None
                return
            calls = list(_calls) if ending else []
        for call in calls:
            call.cancel()
