"""Edges at the boundaries of temporal sampling: the column for Cohort in docs/how-to/time.md."""

import pytest
import torch
from torch_geometric.data import Data

from cohort_gnn import CohortError, NeighborLoader
from cohort_gnn.spec.graph import NO_TIME

pytestmark = pytest.mark.usefixtures("shm")
SOURCES = 4  # nodes 1 to 4 have an edge to the target of each case
DAY, NANOSECONDS_A_DAY = 86_400, 86_400_000_000_000
CASES = {  # times of the four edges, time of the seed, the sources drawn at any age, with WINDOW, and one by "last"
    "the seed's time": ([4, 5, 6, 5], 5, [1, 2, 4], [1, 2, 4], [4]),
    "days, with a seed in seconds": ([19_000, 19_001, 19_002, 19_003], 19_001 * DAY, [1, 2, 3, 4], [], [4]),
    "negative": ([-7, -5, -3, 0], -4, [1, 2], [1, 2], [2]),
    "no time": ([NO_TIME, 0, 9, NO_TIME], 5, [1, 2, 4], [2], [2]),
    "a seed before all times": ([NO_TIME, NO_TIME + 1, 0, 1], NO_TIME, [1], [1], [1]),
    "the window's end": ([-95, -94, -96, 5], 5, [1, 2, 3, 4], [1, 2, 4], [4]),
    "ties": ([3, 3, 3, 2], 5, [1, 2, 3, 4], [1, 2, 3, 4], [3]),
    "a time, again": ([2, 4, 6, 8], 3, [1], [1], [1]),
    "a time, later": ([2, 4, 6, 8], 7, [1, 2, 3], [1, 2, 3], [3]),
    "only the future": ([6, 7, 8, 9], 5, [], [], []),
}
WINDOW = 100


@pytest.fixture(scope="module")
def graph():
    """Edges to each case's target; those of ties come in another order than their sources."""
    targets = torch.arange(len(CASES)).repeat_interleave(SOURCES) + 1 + SOURCES
    edge_index = torch.stack([torch.arange(1, 1 + SOURCES).repeat(len(CASES)), targets]).flip(1)
    times = torch.tensor([times for times, *_ in CASES.values()]).flatten().flip(0)
    return Data(x=torch.ones(1 + SOURCES + len(CASES), 1), edge_index=edge_index, time=times)


def drawn(data, seeds, times, **how) -> list[list[int]]:
    """Of each seed, the sources in its tree."""
    how = {"fanout": [-1], "time_attr": "time", "batch_size": len(seeds), "device": "cpu"} | how
    with NeighborLoader(data, how.pop("fanout"), torch.tensor(seeds), input_time=torch.tensor(times), **how) as loader:
        (batch,) = loader
        source, target = batch.edge_index
        trees = [batch.n_id[source[batch.batch[target] == tree]] for tree in range(len(seeds))]
        return [sorted(nodes.tolist()) for nodes in trees]


@pytest.mark.parametrize(
    ("how", "column"),
    [({}, 0), ({"time_window": WINDOW}, 1), ({"temporal_strategy": "last", "fanout": [1]}, 2)],
    ids=["any age", "window", "last"],
)
def test_what_is_drawn_at_the_boundaries(graph, how, column):
    seeds = [1 + SOURCES + case for case in range(len(CASES))]
    found = drawn(graph, seeds, [time for _, time, *_ in CASES.values()], **how)
    assert dict(zip(CASES, found, strict=True)) == {name: case[2 + column] for name, case in CASES.items()}


def test_a_node_is_a_seed_at_several_times_and_hops_are_bound_by_the_seed():
    data = Data(x=torch.ones(4, 1), edge_index=torch.tensor([[1, 2, 3], [0, 1, 1]]), time=torch.tensor([3, 4, 6]))
    found = drawn(data, [0, 0, 0], [2, 5, 6], fanout=[-1, -1])
    assert found == [[], [1, 2], [1, 2, 3]], "an edge may be later than the one that leads on"


def test_times_are_integers_of_any_width_and_windows_of_any_unit():
    edges = {"edge_index": torch.tensor([[1, 2, 3], [0, 0, 0]]), "x": torch.ones(4, 1)}
    days = torch.tensor([3, 4, 5], dtype=torch.int32)
    assert drawn(Data(**edges, time=days), [0], [4]) == [[1, 2]]
    nanoseconds = {"time": days.long() * NANOSECONDS_A_DAY, **edges}
    assert drawn(Data(**nanoseconds), [0], [5 * NANOSECONDS_A_DAY], time_window=NANOSECONDS_A_DAY) == [[2, 3]]
    with pytest.raises(CohortError, match="time: expected integers that int64 holds, found dtype float32"):
        drawn(Data(**edges, time=torch.tensor([3, float("nan"), 5])), [0], [4])
