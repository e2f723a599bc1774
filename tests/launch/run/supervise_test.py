"""Stop signals and the processes of a run."""

import os
import signal
import subprocess
import sys
import time

import pytest
from processes import wait_until

from cohort_gnn.base.files import scratch_folder
from cohort_gnn.base.programs import end_processes, has_ended, is_stopped, runs
from cohort_gnn.launch.run import stopping, supervise
from cohort_gnn.launch.run.stopping import (
    STOP_SIGNALS,
    Stopped,
    heed_stop,
    ignore_stop_signals,
    pause,
    stop_on_signals,
)
from cohort_gnn.launch.run.supervise import Supervisor


@pytest.fixture(autouse=True)
def handlers():
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("nohup", [True, False])
def test_every_run_of_a_process_hears_hang_ups_unless_it_is_under_nohup(monkeypatch, nohup):
    monkeypatch.setattr(stopping, "_under_nohup", nohup)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    for _ in range(2):
        stop_on_signals()
        assert (signal.getsignal(signal.SIGHUP) is signal.SIG_IGN) == nohup
        ignore_stop_signals()


def test_a_stop_waits_until_it_is_heeded():
    """So no step of a library is cut in two: within Popen.poll that left its lock held, and its end was waited for
    without end."""
    stop_on_signals()
    for moment in (lambda: pause(0), heed_stop):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)  # the second is not heard
        with pytest.raises(Stopped) as stop:
            moment()
        assert stop.value.number == signal.SIGTERM
        heed_stop()
        stop_on_signals()


def test_the_end_of_a_process_whose_popen_is_stuck():
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    process._waitpid_lock.acquire()  # as an exception within poll() leaves it
    end_processes([process], 5)
    assert has_ended(process) and not runs(process.pid)
    process._waitpid_lock.release()
    assert process.wait() == -signal.SIGTERM


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


def test_a_failure_names_a_log_that_stays(monkeypatch, caplog, tmp_path):
    """Not one in a folder that is removed, as those of `cohort digest` and `cohort bench` are."""
    monkeypatch.setattr(supervise, "GRACE_SECONDS", 0.0)
    command = [sys.executable, "-c", "raise SystemExit('no such thing')"]
    with scratch_folder("supervise-test") as folder:
        for out in (tmp_path, folder):
            caplog.clear()
            supervisor = Supervisor([out], None)
            supervisor.start("trainer", command, out / "trainer.log", {})
            supervisor.children[0].process.wait()
            assert supervisor.watch() == 1
            place = f" ({out / 'trainer.log'})" if out == tmp_path else ""
            assert f"end of its log{place}:\n    no such thing" in caplog.text
