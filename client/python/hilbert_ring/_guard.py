"""Runs a program for as long as standard input is open, then stops it, and removes two folders.

    _guard.py FOLDER FOLDER PROGRAM [ARGUMENTS...]     an empty FOLDER is ignored

A process that dies closes its end of the pipe, so its service ends with it. Runs as a script and needs only the
standard library.
"""
import os
import shutil
import signal
import subprocess
import sys
import threading

STOP_SECONDS = 20  # after SIGTERM, which lets running jobs end


def main() -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the caller's
    folders = sys.argv[1:3]
    program = subprocess.Popen(sys.argv[3:], stdin=subprocess.DEVNULL)

    def stop_at_end_of_input() -> None:
        # Not sys.stdin.read: a thread that waits in it keeps the interpreter from ending.
        while os.read(0, 4096):
            pass
        program.terminate()
        try:
            program.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            program.kill()

    threading.Thread(target=stop_at_end_of_input, daemon=True).start()
    try:
        return program.wait()
    finally:
        for folder in filter(None, folders):
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
