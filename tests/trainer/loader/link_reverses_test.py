"""No batch of links has an edge that says what its pairs are, in any relation that has the pairs' edges."""

import copy
import json
import warnings

import pytest
import torch
import torch_geometric.transforms as T
from torch_geometric.data import HeteroData

import cohort_gnn as cohort
from cohort_gnn.dataset import open as open_dataset

pytestmark = pytest.mark.usefixtures("shm")
BUYS, REV_BUYS = ("user", "buys", "item"), ("item", "rev_buys", "user")
FOLLOWS, REV_FOLLOWS = ("user", "follows", "user"), ("user", "rev_follows", "user")
USERS, ITEMS = 30, 20


def edges(seed: int, sizes=(USERS, ITEMS)) -> torch.Tensor:
    """Some come twice."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.stack([torch.randint(size, (60,), generator=generator) for size in sizes])
    return torch.cat([drawn, drawn[:, :10]], dim=1)


def graph(**of_relations: torch.Tensor) -> HeteroData:
    data = HeteroData()
    data["user"].x, data["item"].x = torch.rand(USERS, 4), torch.rand(ITEMS, 4)
    for name, edge_index in of_relations.items():
        source, target = {"buys": ("user", "item"), "views": ("user", "item"), "follows": ("user", "user")}.get(
            name, ("item", "user")
        )
        data[source, name, target].edge_index = edge_index
    return data


def left_in(batch, relation) -> dict:
    """Of each relation between the types of a relation, how many pairs of the batch it has, and how many backwards."""
    source, target = batch[relation[0]].n_id, batch[relation[2]].n_id
    ends = batch[relation].edge_label_index
    pairs = set(zip(source[ends[0]].tolist(), target[ends[1]].tolist(), strict=True))
    found = {}
    for name in batch.edge_types:
        local, ends = batch[name].edge_index, name[::2]
        there = zip(batch[name[0]].n_id[local[0]].tolist(), batch[name[2]].n_id[local[1]].tolist(), strict=True)
        there = set(there)
        if ends in (relation[::2], relation[::-2]):
            forward = len(there & pairs) if ends == relation[::2] else 0
            found[name] = (forward, len(there & {pair[::-1] for pair in pairs}) if ends == relation[::-2] else 0)
    return found


def all_left(data, relation=BUYS, **options) -> dict:
    """The same of all batches, with all neighbours."""
    sums: dict = {}
    with cohort.LinkNeighborLoader(data, [-1, -1], relation, batch_size=16, device="cpu", **options) as loader:
        for batch in loader:
            for name, counts in left_in(batch, relation).items():
                sums[name] = tuple(map(sum, zip(sums.get(name, (0, 0)), counts, strict=True)))
    return sums


def on_disk(data, folder, marked: bool):
    cohort.from_pyg(data, folder, target="item")
    if not marked:
        meta = json.loads((folder / "meta.json").read_text())
        for each in meta["edges"]:
            each.pop("reverse_of", None)
        (folder / "meta.json").write_text(json.dumps(meta))
    return folder


@pytest.mark.parametrize("place", ["memory", "disk", "unmarked"])
@pytest.mark.parametrize("relation", [BUYS, REV_BUYS])
def test_pairs_do_not_stay_in_what_to_undirected_added(tmp_path, place, relation):
    data = T.ToUndirected()(graph(buys=edges(1), views=edges(2)))
    given = data if place == "memory" else on_disk(data, tmp_path / "set", marked=place == "disk")
    left = all_left(given, relation)
    back = REV_BUYS if relation == BUYS else BUYS
    assert left[relation] == left[back] == (0, 0)
    assert all_left(given, relation, exclude="self")[back][1] > 50
    in_trees = all_left(given, relation, disjoint=True)
    assert in_trees[relation] == in_trees[back] == (0, 0)


def test_pairs_do_not_stay_in_any_relation_of_the_same_edges():
    data = T.ToUndirected()(graph(buys=edges(1), sold_to=edges(1).flip(0)))
    assert len(data.edge_types) == 4
    assert set(all_left(data).values()) == {(0, 0)}
    for relation in data.edge_types:
        data[relation].time = torch.arange(data[relation].num_edges)
    times = {"time_attr": "time", "edge_label_time": torch.full((70,), 100)}
    assert set(all_left(data, **times).values()) == {(0, 0)}


def test_pairs_within_one_type():
    follows = edges(3, (USERS, USERS))
    both = torch.cat([follows, follows.flip(0)], dim=1)
    merged = all_left(T.ToUndirected()(graph(follows=follows, buys=edges(1))), FOLLOWS)
    assert merged == {FOLLOWS: (0, 0)}
    apart = all_left(T.ToUndirected(merge=False)(graph(follows=follows, buys=edges(1))), FOLLOWS)
    assert apart.keys() == {FOLLOWS, REV_FOLLOWS} and apart[FOLLOWS][0] == apart[REV_FOLLOWS][1] == 0
    twice = all_left(T.ToUndirected(merge=False)(graph(follows=both, buys=edges(1))), FOLLOWS)
    assert twice == {FOLLOWS: (0, 0), REV_FOLLOWS: (0, 0)}


def test_the_split_of_pyg_leaves_no_pair_either():
    """RandomLinkSplit with the reverse edge type: message edges, their reverses, and pairs that are others."""
    data = T.ToUndirected()(graph(buys=edges(1)))
    options = {"edge_types": [BUYS], "rev_edge_types": [REV_BUYS], "disjoint_train_ratio": 0.3}
    split = T.RandomLinkSplit(num_val=0.2, num_test=0.2, add_negative_train_samples=False, **options)
    for part in split(copy.copy(data)):
        pairs = part[BUYS].edge_label_index
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            loader = cohort.LinkNeighborLoader(part, [-1], (BUYS, pairs), batch_size=8, device="cpu")
        with loader:
            assert all(set(left_in(batch, BUYS).values()) == {(0, 0)} for batch in loader)


def test_an_opposite_relation_of_other_edges_is_told_and_settled(tmp_path):
    data = graph(buys=edges(1), sold_to=edges(1).flip(0)[:, 1:])
    sold_to = ("item", "sold_to", "user")
    options = {"batch_size": 16, "device": "cpu"}
    with pytest.warns(UserWarning, match="opposite to .*'buys'.*batches have all its edges") as said:
        cohort.LinkNeighborLoader(data, [-1], BUYS, **options).close()
    assert [each.filename for each in said] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cohort.LinkNeighborLoader(data, [-1], BUYS, exclude="self", **options).close()
        for of, left in ((BUYS, False), (None, True)):
            folder = cohort.from_pyg(data, tmp_path / "set", target="item", reverse_of={sold_to: of}, overwrite=True)
            assert (all_left(folder)[sold_to][1] > 0) == left
            assert open_dataset(folder).reverse_of(BUYS) == (sold_to if of else None)


def test_follows_of_no_reverse_has_directions(tmp_path):
    both = torch.cat([edges(3, (USERS, USERS)), edges(3, (USERS, USERS)).flip(0)], dim=1)
    data = graph(follows=both, buys=edges(1))
    told = cohort.from_pyg(data, tmp_path / "told", target="item", reverse_of={FOLLOWS: None})
    assert all_left(data, FOLLOWS) == {FOLLOWS: (0, 0)}
    found = all_left(told, FOLLOWS)[FOLLOWS]
    assert found[0] == 0 and found[1] > 0
