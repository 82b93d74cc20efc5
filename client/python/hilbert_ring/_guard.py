"""Runs a program for as long as standard input is open, and then stops it.

A process that dies, however it dies, closes its end of the pipe: so its service goes with it. Run
as a script, with nothing but the standard library.
"""
import os
import signal
import subprocess
import sys
import threading

STOP_SECONDS = 20  # SIGTERM lets jobs that run end


def main() -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the caller's
    program = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)

    def stop_at_end_of_input() -> None:
        # Not by sys.stdin: a thread that waits within it keeps the interpreter from ending.
        while os.read(0, 4096):
            pass
        program.terminate()
        try:
            program.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            program.kill()

    threading.Thread(target=stop_at_end_of_input, daemon=True).start()
    return program.wait()


if __name__ == "__main__":
    sys.exit(main())
