"""Stop signals and the processes of a run."""

import os
import signal
import time

import pytest

from cohort.launch.supervise import STOP_SIGNALS, Stopped, stop_on_signals, stopped_later


def test_a_stop_that_comes_while_a_process_is_started_waits_until_it_is_known():
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    known = []
    try:
        stop_on_signals()
        with pytest.raises(Stopped) as stop, stopped_later():
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.05)
            known.append("process")
        assert stop.value.number == signal.SIGTERM and known == ["process"]
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
