"""What `cohort tune` makes of a second run of the best options and of those as given."""

import json
from types import SimpleNamespace

import pytest

from cohort_gnn.launch.tune import command
from cohort_gnn.launch.tune.output import TuneResults, conclude
from cohort_gnn.launch.tune.trial import Trial
from cohort_gnn.spec.results import TIMES

START = {"cache_ratio": 0.0, "sampler_sms": 0, "slots": 4, "reuse": True, "compress": "auto"}


def trial_of(folder, number: int, cost: float, **changed) -> Trial:
    times = dict.fromkeys(TIMES, 0.0) | {"seconds": cost}
    return Trial(number, folder / f"trial-{number:02}", START | changed, dict(changed), times=times, host_bytes=0.0)


@pytest.mark.parametrize(
    ("again", "is_kept", "told"),
    [((1.2, 1.19), False, "ran again"), ((1.5, 1.2), True, "ran again"), ((None, None), True, "ran once")],
)
def test_a_gain_counts_where_it_shows_twice(tmp_path, capsys, again, is_kept, told):
    """Slots 6 was "best" once, by 0.25 s of which 0.22 s were of training: trial 1 had run on a busy machine."""
    trials = [trial_of(tmp_path, 1, 1.5), trial_of(tmp_path, 2, 1.25, slots=6)]
    trials[0].again, trials[1].again = again
    results = TuneResults(tmp_path, tmp_path / "data", "cpu", 3, START, {}, trials, False)
    conclude(results, quiet=False)
    assert results.best is trials[is_kept]
    assert told in capsys.readouterr().out
    found = json.loads((tmp_path / "tune.json").read_text())
    assert found["best"] == 1 + is_kept and [each["again_seconds"] for each in found["trials"]] == list(again)


@pytest.mark.parametrize(("left", "num_runs"), [(10, 2), (1.5, 0)])
def test_both_run_again_where_there_is_time(tmp_path, monkeypatch, left, num_runs):
    began = []

    def run(trial, *_):
        began.append(trial.folder.relative_to(tmp_path))
        trial.times = dict.fromkeys(TIMES, 1.0 if trial.number == 1 else 0.5)

    monkeypatch.setattr(Trial, "run", run)
    trials = [trial_of(tmp_path, 1, 1.5), trial_of(tmp_path, 2, 1.25, slots=6)]
    tuning = command.Tuning.__new__(command.Tuning)
    tuning.results = TuneResults(tmp_path, tmp_path / "data", "cpu", 3, START, {}, trials, False)
    bound = SimpleNamespace(allows_another=lambda count: count <= left, left=left)
    screen = SimpleNamespace(begins=lambda *_: None, ended=lambda *_: None, tick=None)
    tuning._confirm(bound, screen)
    assert list(map(str, began)) == ["trial-01/again", "trial-02/again"][:num_runs]
    assert [each.again for each in trials] == ([1.0, 0.5] if num_runs else [None, None])
    assert tuning.results.best is trials[1]
