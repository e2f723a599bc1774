"""Signals that stop the program of `cohort predict`; predict_test.py has what whole commands do."""

import os
import signal

import pytest

from cohort_gnn.trainer.predict.program import stop


def test_a_second_signal_does_not_disturb_the_end():
    before = signal.signal(signal.SIGTERM, stop)
    try:
        with pytest.raises(SystemExit) as ended:
            os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert ended.value.code == 128 + signal.SIGTERM
