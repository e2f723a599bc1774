"""RUN/timeline.json: one clock for the trainers and their sampler."""

import json
import time
from types import SimpleNamespace

import pytest
import torch
from processes import cohort, two_ranks

from cohort.trainer.report.step_log import StepLog
from cohort.trainer.report.timeline import rows_of, write_timeline

pytestmark = pytest.mark.usefixtures("shm")
RUNS = [("cpu", 2), *(pytest.param("cuda", num_ranks, marks=pytest.mark.gpu) for num_ranks in (1, 2))]
CPU = torch.device("cpu")


def run(data, out, *arguments) -> dict:
    """The timeline of a run."""
    result = cohort("train", data, "--fanout", "4,3", "--hidden", 8, "--quiet", "--out", out, *arguments)
    assert result.returncode == 0, result.stderr
    return json.loads((out / "timeline.json").read_text())


def assert_in_order(rows: dict, slack: float) -> None:
    """Every batch is sampled, fetched, then trained on, and no row has two at once; times differ by `slack` at most."""
    for spans in rows.values():
        assert all(begin <= end for begin, end in spans)
        assert all(before[1] <= after[0] + slack for before, after in zip(spans, spans[1:], strict=False))
    for sample, fetch, train in zip(rows["sample"], rows["fetch"], rows["train"], strict=False):
        assert sample[1] <= fetch[0] + slack and fetch[1] <= train[0] + slack


@pytest.mark.parametrize(("device", "num_ranks"), RUNS)
def test_forty_steps_of_the_second_epoch_of_each_rank(cora, tmp_path, device, num_ranks):
    ranks = two_ranks(device) if num_ranks == 2 else []
    timeline = run(cora, tmp_path, "--device", device, *ranks, "--batch-size", 20, "--epochs", 2)
    assert timeline["epoch"] == 1 and len(timeline["ranks"]) == num_ranks
    for rows in timeline["ranks"]:
        assert list(rows) == ["sample", "fetch", "train"]
        assert all(len(spans) == 40 for spans in rows.values())
        assert_in_order(rows, slack=2e-6 if device == "cpu" else 1e-3)  # a host sees a GPU's events a while later
    assert min(rows[name][0][0] for rows in timeline["ranks"] for name in rows) == 0


def test_an_only_epoch_and_a_batch_without_seeds(cora, tmp_path):
    """1625 training nodes in batches of 600 are 3 batches: the second of rank 1 is empty."""
    timeline = run(cora, tmp_path, "--device", "cpu", "--ranks", 2, "--batch-size", 600, "--epochs", 1)
    sizes = [[len(spans) for spans in rows.values()] for rows in timeline["ranks"]]
    assert timeline["epoch"] == 0 and sizes == [[2, 2, 2], [1, 1, 2]]


def test_a_run_in_the_same_folder_forgets_the_timeline_before(cora, tmp_path):
    for name in ("run.json", "timeline.json"):
        (tmp_path / name).write_text("of another run")
    assert run(cora, tmp_path, "--device", "cpu", "--batch-size", 600, "--epochs", 1)["epoch"] == 0


def slot(number: int, begin_us: int, num_seeds: int = 1):
    """A slot whose sampling and fetching began then, and took 10 and 20 us."""
    spans = (begin_us, begin_us + 10, begin_us + 11, begin_us + 31) if num_seeds else (0, 0, 0, 0)
    tiers = [(0, 0, 0.0), (0, 0, 0.0), (7, 700, 1e-6), (2, 200, 1e-6)]
    facts = {"num_sampled_nodes": [1, 3], "num_sampled_edges": [4], "row_tiers": tiers}
    return SimpleNamespace(step=number, num_seeds=num_seeds, spans=spans, **facts)


@pytest.fixture
def steps():
    """Three steps of a log of at most three: the second without seeds."""
    log = StepLog(CPU, "train", 5, limit=3)
    for number in range(4):
        log.step_begins(10.0 + number)
        log.step_ended(10.5 + number, slot(number, 9_000_000 + 1000 * number, num_seeds=number != 1))
    return log.steps()


def test_a_log_keeps_the_first_steps(steps):
    assert [step.batch for step in steps] == [0, 1, 2]
    first, second, _ = steps
    assert (first.task, first.epoch, first.nodes, first.edges) == ("train", 5, 4, 4)
    assert first.row_bytes == {"local": 0, "peer": 0, "host": 700, "recent": 200}
    assert first.sample == pytest.approx((9.0, 9.00001)) and first.fetch == pytest.approx((9.000011, 9.000031))
    assert second.sample is second.fetch is None
    assert second.wait == (10.5, 11.0) and second.work == (11.0, 11.5)


class Event:
    """An event of a GPU whose clock is ours."""

    def __init__(self, enable_timing: bool, at: float = 0.0):
        assert enable_timing
        self.at = at

    def record(self) -> None:
        self.at = time.monotonic()

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, later: "Event") -> float:
        """Milliseconds."""
        return 1e3 * (later.at - self.at)


def test_events_of_a_gpu_are_counted_from_one_that_both_clocks_know(monkeypatch):
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: Event(True))
    before = time.monotonic()
    log = StepLog(torch.device("cuda", 0), "train", 0, limit=9)
    after = time.monotonic()
    for number in range(2):
        log.step_begins(Event(True, before + 4 * number))
        log.step_ended(Event(True, before + 4 * number + 2), slot(number, 0))
    first, second = log.steps()
    assert first.work[1] - first.work[0] == pytest.approx(2) and second.wait[1] - second.wait[0] == pytest.approx(2)
    assert abs(second.work[1] - (before + 6)) <= after - before, "the error is at most what making the log took"


def test_times_count_from_the_first_of_all_ranks(steps, tmp_path):
    later = {"sample": [], "fetch": [], "train": [(8.75, 9.25)]}
    write_timeline(tmp_path / "timeline.json", 1, [rows_of(steps), later])
    found = json.loads((tmp_path / "timeline.json").read_text())
    assert found["ranks"][1] == {"sample": [], "fetch": [], "train": [[0, 0.5]]}
    assert found["ranks"][0]["sample"] == [[0.25, 0.25001], [0.252, 0.25201]]
    assert found["ranks"][0]["train"] == [[1.25, 1.75], [2.25, 2.75], [3.25, 3.75]]
