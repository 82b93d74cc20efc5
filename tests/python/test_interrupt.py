"""Ctrl-C ends a program, and its jobs, while other threads than the main one wait for calls."""
import os
import signal
import subprocess
import sys
import time

import pytest

from client_rig import UNTIL, no_jobs

MOST_SECONDS = 5  # from Ctrl-C to the end of the process; below 1 on an idle machine

PROGRAM = """
import sys, threading, time
from concurrent.futures import ThreadPoolExecutor
sys.path.insert(0, {folder!r})
import hilbert_ring, test_course
client = hilbert_ring.connect({server!r})
tensors = test_course.long_tensors()
begun = threading.Semaphore(0)

def show(progress):
    if progress.admitted:
        begun.release()

def attend(number):
    client.attend(*tensors, **{{**test_course.LONG, "progress": show}})

def stream(number):
    begun.release()
    list(client.attend_stream(iter([tensors] * 1000), segments=[400_000]))

def away(number):
    with hilbert_ring.connect("127.0.0.1:1") as missing:
        begun.release()
        missing.attend(*tensors, **test_course.LONG, outage_timeout=600)

def asked(number):
    with hilbert_ring.connect("127.0.0.1:1") as missing:
        begun.release()
        missing.encode(tensors[0], model="none", progress=False, outage_timeout=600)

def switches_of_main():
    with open(f"/proc/self/task/{{threading.main_thread().native_id}}/status") as status:
        return [line for line in status if "ctxt_switches" in line]

def wait():
    begun.acquire()
    # Python may miss a signal that comes just before the main thread waits, so the test sends it after. A thread that
    # waits only for the interpreter's lock is switched every 5 ms.
    before = None
    while (now := switches_of_main()) != before:
        before = now
        time.sleep(0.3)
    print("begun", flush=True)

threading.Thread(target=wait, daemon=True).start()
"""
WITH = "with ThreadPoolExecutor(2) as pool: list(pool.map({call}, range(50)))"  # most of them wait
SHAPES = {
    "executor": WITH.format(call="attend"),
    "threads": "threads = [threading.Thread(target=attend, args=[0]) for _ in range(2)]\n"
               "for thread in threads: thread.start()\n"
               "for thread in threads: thread.join()",
    "stream": WITH.format(call="stream"),
    "service is away": WITH.format(call="away"),
    "short call": WITH.format(call="asked"),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_ctrl_c_ends_calls_of_other_threads(client, shape):
    program = PROGRAM.format(folder=os.path.dirname(__file__), server=client.server) + SHAPES[shape]
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True)
    try:
        assert process.stdout.readline() == "begun\n"
        start = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=UNTIL)
    finally:
        process.kill()
    assert time.monotonic() - start < MOST_SECONDS
    assert process.returncode == -signal.SIGINT and "KeyboardInterrupt" in said
    assert no_jobs(client)


def test_calls_of_a_program_that_ends_are_waited_for(client):
    """Without Ctrl-C, the main thread's end or error does not end the calls of other threads."""
    program = (f"import sys; sys.path.insert(0, {os.path.dirname(__file__)!r})\n"
               "import hilbert_ring, test_course, threading, time\n"
               "def attend():\n"
               "    time.sleep(0.3)\n"
               "    tensors = test_course.tensors(64)\n"
               f"    with hilbert_ring.connect({client.server!r}) as client:\n"
               "        client.attend(*tensors, segments=[64], progress=False)\n"
               "    print('done')\n"
               "threading.Thread(target=attend).start()\n"
               "raise ValueError\n")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=UNTIL, check=False)
    assert done.stdout == "done\n", done.stderr
