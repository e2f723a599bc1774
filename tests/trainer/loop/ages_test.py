"""How old nodes are at the time of their seeds, and what a model makes of it."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch_geometric.data import HeteroData

from cohort_gnn import CohortError, LinkNeighborLoader, NeighborLoader, from_pyg
from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.spec.graph import NO_TIME, GraphTypes
from cohort_gnn.spec.run import TrainerSpec
from cohort_gnn.trainer.loader.source import OfPairs
from cohort_gnn.trainer.loop.passes import Passes
from cohort_gnn.trainer.loop.seeds import NodeAges, Seeds
from cohort_gnn.trainer.models.ages import AgeRows
from cohort_gnn.trainer.models.typed import TypedGNN

BUYS, REV_BUYS = ("user", "buys", "item"), ("item", "rev_buys", "user")
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """Items have times, one of them none; users have none."""
    rng = torch.Generator().manual_seed(4)
    data = HeteroData()
    data["user"].x = torch.randn(20, 3, generator=rng)
    data["item"].num_nodes = 30
    data["item"].time = torch.randint(40, (30,), generator=rng)
    data["item"].time[0] = NO_TIME
    ends, times = torch.stack([torch.arange(200) % 20, torch.arange(200) % 30]), torch.arange(200)
    for name, edge_index in ((BUYS, ends), (REV_BUYS, ends.flip(0))):
        data[name].edge_index, data[name].edge_time = edge_index, times
    return open_dataset(from_pyg(data, tmp_path_factory.mktemp("ages") / "set", target="user"))


@pytest.mark.parametrize(("mode", "count"), [("triplet", 2), ("binary", 2)])
def test_ages_are_those_at_the_time_of_the_pair(shop, shm, mode, count):
    """The batch of a loader says the same as the slot does in training."""
    pairs = torch.stack([torch.arange(20), torch.arange(20)])
    options = {"edge_label_time": torch.arange(50, 70), "time_attr": "edge_time", "device": "cpu", "batch_size": 8}
    with LinkNeighborLoader(shop, [4, 3], (BUYS, pairs), neg_sampling=(mode, count), **options) as loader:
        source, draws = loader._sampler.source, {"disjoint": True, "draw": "uniform"}
        which = source.request(loader._seed_set, loader._fanout, 8, pair_draws=loader._pair_request, **draws)
        ages, num_known = NodeAges(shop, ["item"], CPU), 0
        for slot in source.slots(which):
            found = ages.nodes_of(slot, options["edge_label_time"], loader._pair_request)
            assert list(found) == ["item"]
            batch = loader._counted([0, 0], SimpleNamespace(step_begins=lambda slot: None), slot)
            of_pairs = options["edge_label_time"][batch[BUYS].input_id]
            assert torch.equal(found["item"], of_pairs[batch["item"].batch] - batch["item"].time)
            assert ((found["item"] < 0) == (batch["item"].n_id == 0)).all()
            num_known += (found["item"] > 0).sum()
        assert num_known > 100


def test_batches_of_a_run_have_ages_whether_or_not_its_test_has_links(shop, shm):
    types = replace(shop.types, relation=BUYS, age_spans={"item": 70})
    options = TrainerSpec(num_classes=8, feature_dim=3, targets="link", types=types, in_time=True, batch_size=8,
                          task_name="next", fanout=[4, 3], trees={"disjoint": True, "draw": "uniform"})  # fmt: skip
    pairs, times = np.stack([np.arange(20), 20 + np.arange(20)], 1), np.arange(50, 70)
    how = {"input_time": torch.arange(20), "time_attr": "time", "device": "cpu"}
    with NeighborLoader(shop, [4, 3], ("user", torch.arange(20)), **how) as loader:
        splits = {"train": Seeds(pairs, times), "test": Seeds(np.zeros(0, np.int64))}
        passes = Passes(options, loader._sampler.source, splits, shop)
        for slot in passes.slots(passes.ask("train", [4, 3]), "train", 1):
            assert list(slot.ages) == ["item"] and (slot.ages["item"][: slot.num_inputs] <= 70).all()
    assert passes.sizes == {"train": 20, "test": 0}


def test_ages_of_nodes_that_are_seeds(shop):
    slot = SimpleNamespace(
        input_id=torch.tensor([2, 0]),
        tree=torch.tensor([0, 1, 1, 0, 1]),
        n_id=torch.tensor([5, 6, 6, 0, 3]),
        nodes_of_types=[[2, 0], [0, 3]],
    )
    times = torch.from_numpy(np.array(shop.node_types["item"].node_times))
    (found,) = NodeAges(shop, ["item"], CPU).nodes_of(slot, torch.tensor([100, 7, 300]), OfPairs()).values()
    assert found.tolist() == [100 - times[6], NO_TIME + 300, 100 - times[3]]


def test_no_two_ages_have_the_same_waves_and_none_has_zeros():
    rows = AgeRows({"item": 1000}, 8)
    encoded = rows._encoded(torch.arange(2000), 1000)
    distances = torch.cdist(encoded, encoded) + torch.eye(2000)
    assert distances.min() > 0.05
    assert rows({"item": torch.tensor([-1, NO_TIME, NO_TIME + 5, 2**62, 3])})["item"].any(dim=1).tolist() == [
        *[False] * 4,
        True,
    ]
    with pytest.raises(CohortError, match="ages: expected ages of nodes, of item, found none"):
        rows({"user": torch.arange(3)})


@pytest.mark.parametrize("kind", ["rsage", "rgcn", "rgat", "hgt"])
def test_ages_are_added_to_features_or_stand_for_them(kind):
    """With Cohort's layers as with PyG's; a node without an age is as a node without its part."""
    types = GraphTypes({"user": 4, "item": 5}, {"user": 3, "item": 0}, [BUYS, REV_BUYS], "user", age_spans={"item": 9})
    x = {"user": torch.randn(4, 3), "item": torch.arange(5)}
    edges = {BUYS: torch.tensor([[0, 1, 2], [0, 1, 4]]), REV_BUYS: torch.tensor([[0, 1, 4], [0, 1, 2]])}
    ages = torch.tensor([0, 3, 9, 2, -1])
    torch.manual_seed(1)
    model, theirs = (TypedGNN(kind, types, 8, 2, 1, 0.0, layers=layers) for layers in ("cohort", "pyg"))
    theirs.load_state_dict(model.state_dict())
    scores = model(x, edges, ages={"item": ages})
    torch.testing.assert_close(theirs(x, edges, ages={"item": ages}), scores)
    others = model(x, edges, ages={"item": ages.index_fill(0, torch.tensor(0), 5)})
    assert (scores[0] != others[0]).any() and torch.equal(scores[1:], others[1:]), "of user 0, item 0 alone is read"
    scores.square().sum().backward()
    assert all(each.grad is not None and each.grad.any() for each in model.ages.parameters())
    assert [name for name, _ in model.named_parameters() if "ages" in name] == ["ages.lins.item.weight"]
