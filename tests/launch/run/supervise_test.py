"""Stop signals and the processes of a run."""

import os
import signal
import sys
import time

import pytest
from processes import wait_until

from cohort_gnn.base.programs import is_stopped
from cohort_gnn.launch.run import supervise
from cohort_gnn.launch.run.supervise import (
    STOP_SIGNALS,
    Stopped,
    Supervisor,
    ignore_stop_signals,
    stop_on_signals,
    stopped_later,
)


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


def test_a_process_that_is_stopped_is_named_each_time(monkeypatch, caplog, tmp_path):
    monkeypatch.setattr(supervise, "STOPPED_SECONDS", 0.0)
    supervisor = Supervisor([tmp_path], None)
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    supervisor.start("sampler", command, tmp_path / "sampler.log", {})
    pid = supervisor.children[0].process.pid
    try:
        for times in (1, 2):
            os.kill(pid, signal.SIGSTOP)
            wait_until(lambda: is_stopped(pid), 5, "the stop")
            for _ in range(3):
                supervisor._look_for_stopped()
                time.sleep(0.001)
            said = f"the sampler is stopped (SIGSTOP): the run waits till kill -CONT {pid} lets it go on"
            assert caplog.text.count(said) == times
            os.kill(pid, signal.SIGCONT)
            wait_until(lambda: not is_stopped(pid), 5, "the continuation")
            supervisor._look_for_stopped()
    finally:
        supervisor.stop()
    assert not is_stopped(pid), "it has ended"
