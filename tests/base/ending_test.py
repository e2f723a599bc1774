"""base/ending.py: no stop signal is lost."""

import signal
import subprocess
import sys

import pytest

# Each import ends in the callback of a weak reference, where Python drops what a handler raises; a __del__ is another.
PROGRAM = """
import os, signal, sys, threading, time
from cohort_gnn.base.ending import leave, lost_signals_repeated

begin = threading.Thread.start

def begin_slowly(thread):
    begin(thread)
    time.sleep({seconds_to_start})

threading.Thread.start = begin_slowly

class Told:
    def __del__(self):
        os.kill(os.getpid(), {number})
        time.sleep(0)

def stop(number, frame):
    signal.signal(number, signal.SIG_IGN)
    leave(number, frame)

if {number} != signal.SIGINT:
    signal.signal({number}, {handler})
with lost_signals_repeated():
    Told()
    print("goes on", flush=True)
    for _ in range(600):  # Python notices a signal that comes just before a sleep only after it
        time.sleep(0.1)
"""


@pytest.mark.parametrize("seconds_to_start", [0, 0.2])
@pytest.mark.parametrize("handler", ["leave", "stop"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_whose_exception_python_drops_comes_again(number, handler, seconds_to_start):
    program = PROGRAM.format(number=int(number), handler=handler, seconds_to_start=seconds_to_start)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert done.stdout == "goes on\n"
    if number == signal.SIGINT:
        assert done.returncode == -signal.SIGINT and "KeyboardInterrupt" in done.stderr
    else:
        assert (done.returncode, done.stderr) == (128 + number, "")


def test_other_dropped_exceptions_are_shown():
    program = (
        PROGRAM.format(number=0, handler="None", seconds_to_start=0)
        .replace("range(600)", "range(0)")
        .replace("os.kill", "os.lost")
    )
    program = program.replace("    signal.signal(0, None)", "    pass")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0 and "Exception ignored in" in done.stderr and "AttributeError" in done.stderr
