"""Killed at random moments and taken up again, a run ends with the losses of one that nobody disturbed.

COHORT_KILLS=100 python -m pytest tests/launch/run/kill_test.py -s kills 100 times instead of 2.
"""

import os
import random
import signal
import time
from collections import Counter

import pytest
import warm
from processes import ALL_TESTS, SECONDS_TO_END, processes_of, wait_until
from resumable import results_of

KILLS = int(os.environ.get("COHORT_KILLS", 100 if ALL_TESTS else 2))
KILLS_A_RUN = 5 if KILLS > 5 else 2
# About as long as a start takes, fresh or forked; moments beyond it are in training, too.
SECONDS_OF_LOADING = 4.0 if os.environ.get(warm.FRESH) else 1.0
SECONDS_OF_TRAINING = 0.2  # after the first checkpoint of a start
KINDS = [(), ("--checkpoint-every", "7"), ("--ranks", "2", "--checkpoint-every", "3")]

pytestmark = pytest.mark.usefixtures("shm")


def kill_at_a_random_moment(run, dice: random.Random) -> str | None:
    """Kills one process of the run; its role, or None when the run had ended before."""
    loading = dice.random() < 0.4
    seconds = dice.random() * (SECONDS_OF_LOADING if loading else SECONDS_OF_TRAINING)
    role = dice.choice(["launcher", "sampler", "trainer"])
    wait_until((run.out / "run.json").exists, 30, "starting")
    if not loading:
        run.await_checkpoint()
    time.sleep(seconds)
    if run.launcher.poll() is not None:
        return None
    pids = run.pids()[role] or run.pids()["launcher"]
    os.kill(dice.choice(sorted(pids)), signal.SIGKILL)
    return f"{role}, {'loading' if loading else 'training'}"


@pytest.mark.timeout(60 * KILLS_A_RUN)
@pytest.mark.parametrize("number", range(-(-KILLS // KILLS_A_RUN)))
def test_a_run_that_is_killed_ends_like_one_that_is_not(launch, undisturbed, shm, tmp_path, number, record_property):
    dice, out = random.Random(number), tmp_path / "run"
    kind = KINDS[number % len(KINDS)]
    run, killed = launch.train(*kind), Counter()
    while killed.total() < min(KILLS_A_RUN, KILLS - number * KILLS_A_RUN):
        role = kill_at_a_random_moment(run, dice)
        killed[role] += role is not None
        code = run.wait()
        assert code in ((0,) if role is None else (0, 1, -signal.SIGKILL)), run.errors.read_text()
        wait_until(lambda: not processes_of(out), SECONDS_TO_END, "ending every process")
        run = launch("--resume", out)
    assert run.wait() == 0, run.errors.read_text()
    ranks = kind[:2] if "--ranks" in kind else ()
    assert results_of(out) == undisturbed(*ranks)
    wait_until(lambda: not processes_of(out), SECONDS_TO_END, "ending every process")
    assert shm.runs() == []
    assert not list(out.glob("*.tmp"))
    record_property("killed", dict(killed))
    print(f"killed with {' '.join(kind) or 'the defaults'}: {dict(killed)}")
