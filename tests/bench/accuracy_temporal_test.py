"""bench/accuracy_temporal.py: both sides see the same events, none of them from a pair's own step or a later one."""

import sys

import numpy as np
import pytest
import torch
from documents import ROOT, module
from processes import ALL_TESTS

import cohort_gnn as cohort

bench = module(ROOT / "bench/accuracy_temporal.py")


@pytest.fixture(scope="module")
def stream():
    return bench.event_stream(3)


def test_a_learner_takes_each_course_once_and_negatives_are_other_courses(stream):
    assert (stream.time[1:] >= stream.time[:-1]).all()
    assert len(set(zip(stream.learner.tolist(), stream.course.tolist(), strict=True))) == len(stream.time)
    for course, others in zip(stream.course.tolist(), stream.negatives.tolist(), strict=True):
        assert course not in others and len(set(others)) == bench.NEGATIVES
    assert stream.learner.min() >= bench.COURSES > max(stream.course.max(), stream.negatives.max())


@pytest.mark.parametrize("latest", [None, 4])
def test_a_snapshot_has_the_edges_up_to_its_step(stream, latest):
    num_steps, rng = 12, np.random.default_rng(0)
    matrix = bench.snapshots(stream, num_steps, latest).to_dense()
    (source, target), time = stream.edges
    for node, step in zip(rng.integers(stream.num_nodes, size=200), rng.integers(num_steps, size=200), strict=True):
        may = (target == node) & (time <= step)
        by_time = sorted(zip(time[may].tolist(), source[may].tolist(), strict=True))
        expected = [each for _, each in by_time[-latest if latest else 0 :]]
        row = matrix[step * stream.num_nodes + node]
        assert (torch.nonzero(row).flatten() - step * stream.num_nodes).tolist() == sorted(expected)


@pytest.mark.parametrize("strategy", ["uniform", "last"])
def test_both_sides_compute_the_same_rows(stream, tmp_path, strategy):
    torch.manual_seed(0)
    model, links = bench.Model(stream.x.shape[1], bench.HIDDEN), stream.held_out(range(20, 21))
    latest = {"uniform": None, "last": 10}[strategy]
    with torch.no_grad(), bench.loader_of(stream, strategy, 0, 64, tmp_path) as loader:
        expected = bench.FullGraph(stream, latest, []).rows(model, links)
        cohort.nn.accelerate(model)
        found = bench.Sampled(loader, stream, bench.EVAL_FANOUTS[strategy]).rows(model, links)
        numbers = np.union1d(links.pairs, links.negatives)
        torch.testing.assert_close(found[numbers], expected[numbers], rtol=1e-4, atol=1e-4)


def test_training_pairs_have_the_events_of_earlier_steps(stream, tmp_path):
    with bench.loader_of(stream, "uniform", 0, 300, tmp_path) as loader:
        batch = next(iter(loader))
        events = set(zip(stream.learner.tolist(), stream.course.tolist(), stream.time.tolist(), strict=True))
        (_, target), time = stream.edges
        for *roots, now in zip(batch.src_index, batch.dst_pos_index, batch.dst_neg_index, batch.seed_time, strict=True):
            learner, course, other = batch.n_id[torch.stack(roots)].tolist()
            assert (learner, course, int(now) + 1) in events and other < bench.COURSES
            assert int(now) + 1 in bench.TRAIN
            for root in roots:
                earlier = int(((target == batch.n_id[root]) & (time <= now)).sum())
                assert batch.indptr[root + 1] - batch.indptr[root] == min(earlier, bench.FANOUTS["uniform"][0])


def test_training_without_times_sees_later_events_but_not_its_own_pairs(stream):
    seen = []

    def model(_, matrix):
        seen.append(matrix)
        return torch.zeros(stream.num_nodes, bench.HIDDEN)

    training = torch.stack([stream.learner, stream.course, stream.course, stream.time - 1])
    batches = list(training[:, stream.of_steps(bench.TRAIN)].split(2048, dim=1))
    assert len(list(bench.NoTimes(stream, None, [batches]).epoch(model))) == len(batches) > 2
    before_test = int((stream.time < bench.TRAIN.stop).sum())
    assert [2 * before_test - matrix._nnz() for matrix in seen] == [2 * batch.shape[1] for batch in batches]


@pytest.mark.skipif(not ALL_TESTS, reason="takes 17 s: tests/run.sh --all runs it")
def test_the_reference_trains_on_the_pairs_and_negatives_of_the_loader(stream, tmp_path):
    model = bench.Model(stream.x.shape[1], bench.HIDDEN)
    with torch.no_grad(), bench.loader_of(stream, "last", 0, 2048, tmp_path) as loader:
        side = bench.Sampled(loader, stream, bench.EVAL_FANOUTS["last"])
        found = [list(side.epoch(model)) for _ in range(2)]
    reference = bench.FullGraph(stream, 10, side.epochs)
    for scores in found:
        torch.testing.assert_close(scores, list(reference.epoch(model)), rtol=1e-4, atol=1e-4)
    assert not torch.equal(found[0][0][1], found[1][0][1]), "another epoch has another order"


@pytest.mark.parametrize(
    ("uniform", "last", "no_times", "status"),
    [(-0.4, 0.1, -6.0, 0), (-0.6, 0.1, -6.0, 1), (0.1, -0.6, -6.0, 1), (0.1, 0.1, -4.0, 1)],
)
def test_a_loss_is_an_error_and_so_is_a_task_that_needs_no_times(
    tmp_path, monkeypatch, capsys, uniform, last, no_times, status
):
    def measure(seed: int, _args) -> dict[str, float]:
        values = {"PyG": 17.0, "uniform": 17 + uniform, "PyG, last": 19.0, "last": 19 + last}
        return {side: value + seed for side, value in values.items()} | {"PyG, no times": 17 + no_times + 2 * seed}

    monkeypatch.setattr(bench, "measure", measure)
    monkeypatch.setattr(sys, "argv", ["accuracy_temporal.py", "--seeds", "2", "--out", str(tmp_path)])
    assert bench.main() == status
    printed = capsys.readouterr().out
    assert f"| uniform | 17.50 ± 0.71 | {17.5 + uniform:.2f} ± 0.71 | {uniform:+.2f} | 0.00 |" in printed
    assert f"| {no_times + 0.5:+.2f} | 0.50 |" in printed
