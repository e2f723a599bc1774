"""NeighborLoader.state_dict(): an epoch goes on in its middle, in another loader, with the batches that were left."""

import io
import json

import numpy as np
import pytest
import torch

from cohort_gnn import CohortError, NeighborLoader
from cohort_gnn.launch.run.supervise import describe_channel

pytestmark = pytest.mark.usefixtures("shm")

SEEDS = np.random.default_rng(7).permutation(2708)[:300]  # 10 batches of 32, the last of 12


def loader_of(data, **options) -> NeighborLoader:
    options = {"batch_size": 32, "input_nodes": SEEDS, "shuffle": True, "seed": 3, "device": "cpu"} | options
    return NeighborLoader(data, options.pop("num_neighbors", [5, 5]), **options)


def bits(batch) -> list:
    return [getattr(batch, name).tolist() for name in ("n_id", "input_id", "edge_index", "y")] + [batch.x.sum().item()]


@pytest.fixture(scope="module")
def epochs(cora, shm) -> list[list]:
    """The batches of three epochs that nobody disturbed."""
    with loader_of(cora) as loader:
        return [[bits(batch) for batch in loader] for _ in range(3)]


def taken(loader, count: int) -> list:
    """The first batches of an iteration, which is then broken off."""
    found = []
    for batch in loader:
        found.append(bits(batch))
        if len(found) == count:
            break
    return found


@pytest.mark.parametrize("count", [1, 4, 10])
def test_another_loader_goes_on_where_the_state_says(cora, epochs, count):
    with loader_of(cora) as loader:
        assert taken(loader, 10**6) == epochs[0]
        assert taken(loader, count) == epochs[1][:count]
        file = io.BytesIO()
        torch.save({"loader": loader.state_dict()}, file)
        file.seek(0)
    state = torch.load(file, weights_only=True)["loader"]
    assert (state["epoch"], state["step"]) == (1, count)
    with loader_of(cora) as loader:
        loader.load_state_dict(state)
        assert loader.state_dict() == state and len(loader) == 10
        assert [bits(batch) for batch in loader] == epochs[1][count:]
        assert [bits(batch) for batch in loader] == epochs[2]


def test_between_epochs_the_state_is_the_begin_of_the_next(cora, epochs):
    with loader_of(cora) as loader:
        assert (loader.state_dict()["epoch"], loader.state_dict()["step"]) == (0, 0)
        taken(loader, 10**6)
        state = loader.state_dict()
        assert (state["epoch"], state["step"]) == (1, 0)
        taken(loader, 3)
        loader.load_state_dict(state)  # in the same loader
        assert [bits(batch) for batch in loader] == epochs[1]


def test_an_epoch_that_is_set_wins_over_the_state(cora, epochs):
    with loader_of(cora) as loader:
        taken(loader, 4)
        loader.load_state_dict(loader.state_dict())
        loader.epoch = 2
        assert (loader.state_dict()["epoch"], loader.state_dict()["step"]) == (2, 0)
        assert [bits(batch) for batch in loader] == epochs[2]
        taken(loader, 4)
        loader.epoch = 1
        assert (loader.state_dict()["epoch"], loader.state_dict()["step"]) == (1, 0)


@pytest.mark.parametrize("number", [np.int64(1), torch.tensor(1)], ids=["NumPy", "torch"])
def test_an_epoch_may_be_set_as_an_integer_of_any_library(cora, epochs, number):
    with loader_of(cora) as loader:
        loader.epoch = number
        assert type(loader.state_dict()["epoch"]) is int
        assert taken(loader, 3) == epochs[1][:3]
        state = json.loads(json.dumps(loader.state_dict()))
        loader.load_state_dict(loader.state_dict())
        assert (state["epoch"], state["step"]) == (1, 3) and [bits(batch) for batch in loader] == epochs[1][3:]


def test_a_second_loader_on_the_sampler_has_a_state_of_its_own(cora):
    with loader_of(cora) as loader:
        other = loader.with_nodes(np.arange(100))
        taken(loader, 4)
        whole = taken(other, 10**6)
        other.epoch = 0
        taken(other, 2)
        assert loader.state_dict()["step"] == 4 and other.state_dict()["step"] == 2
        other.load_state_dict(other.state_dict())
        assert taken(other, 10**6) == whole[2:]


def test_batches_that_are_done_are_not_sampled(cora):
    with loader_of(cora) as loader:
        taken(loader, 8)
        state = loader.state_dict()
    with loader_of(cora) as loader:
        loader.load_state_dict(state)
        assert len(taken(loader, 10**6)) == 2
        sampler = describe_channel(loader._sampler.run_folder)["sampler"]
        assert sampler["batch"] <= 1, "the number of the last batch built, from 0"


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"seed": 4}, "seed"),
        ({"batch_size": 31}, "batch_size"),
        ({"num_neighbors": [5, 4]}, "num_neighbors"),
        ({"shuffle": False}, "shuffle"),
        ({"drop_last": True}, "drop_last"),
        ({"replace": True}, "replace"),
        ({"input_nodes": SEEDS[:-1]}, "input_nodes"),
        ({"disjoint": True}, "(sharing|input_time)"),
    ],
)
@pytest.mark.parametrize("is_swapped", [False, True])
def test_the_state_of_other_batches_is_refused(cora, options, name, is_swapped):
    with loader_of(cora) as loader, loader_of(cora, **options) as other:
        loader, other = (other, loader) if is_swapped else (loader, other)
        with pytest.raises(CohortError, match=f"load_state_dict: {name}: expected .* found .*\n  hint: "):
            other.load_state_dict(loader.state_dict())
        assert len(taken(other, 10**6)) == len(other), "as if nothing had been tried"


@pytest.mark.parametrize("wrong", [{"step": 11}, {"step": -1}, {"step": 1.5}, {"epoch": True}, {"epoch": 2**63}])
def test_a_position_that_is_none_is_refused(cora, wrong):
    with loader_of(cora) as loader, pytest.raises(CohortError, match="load_state_dict: .*expected an integer in"):
        loader.load_state_dict(loader.state_dict() | wrong)


@pytest.mark.parametrize("foreign", [None, {}, {"epoch": 1, "step": 2}, [1, 2]])
def test_what_is_no_state_is_refused(cora, foreign):
    with loader_of(cora) as loader, pytest.raises(CohortError, match="expected what state_dict.* has returned"):
        loader.load_state_dict(foreign)
