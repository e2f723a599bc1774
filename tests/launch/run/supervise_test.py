"""Stop signals and the processes of a run."""

import os
import signal
import time

import pytest

from cohort_gnn.launch.run import supervise
from cohort_gnn.launch.run.supervise import STOP_SIGNALS, Stopped, ignore_stop_signals, stop_on_signals, stopped_later


@pytest.fixture(autouse=True)
def handlers():
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("nohup", [True, False])
def test_every_run_of_a_process_hears_hang_ups_unless_it_is_under_nohup(monkeypatch, nohup):
    monkeypatch.setattr(supervise, "_under_nohup", nohup)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    for _ in range(2):
        stop_on_signals()
        assert (signal.getsignal(signal.SIGHUP) is signal.SIG_IGN) == nohup
        ignore_stop_signals()


def test_a_stop_that_comes_while_a_process_is_started_waits_until_it_is_known():
    known = []
    stop_on_signals()
    with pytest.raises(Stopped) as stop, stopped_later():
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.05)
        known.append("process")
    assert stop.value.number == signal.SIGTERM and known == ["process"]
