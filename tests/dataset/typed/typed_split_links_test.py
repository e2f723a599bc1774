"""Links that are held out of one relation of a graph of several types."""

from pathlib import Path

import numpy as np
import pytest
import torch
from processes import here, refused
from torch_geometric.data import HeteroData

import cohort_gnn as cohort
from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import held_out, split_links, write_links
from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.launch.main import main

USERS, ITEMS = 40, 25
BUYS, REV_BUYS = ("user", "buys", "item"), ("item", "rev_buys", "user")
LIKE, REV_LIKE = ("item", "like", "item"), ("item", "rev_like", "item")


@pytest.fixture
def shop(tmp_path) -> Path:
    """Users who buy items, some twice, and items that are alike; of a purchase the weight is what it is."""
    generator = torch.Generator().manual_seed(3)
    data = HeteroData()
    data["user"].num_nodes = USERS
    data["item"].x, data["item"].y = torch.rand(ITEMS, 3, generator=generator), torch.arange(ITEMS) % 2
    buys = torch.stack([torch.randint(size, (120,), generator=generator) for size in (USERS, ITEMS)])
    data[BUYS].edge_index = torch.cat([buys, buys[:, :20]], dim=1)
    data[BUYS].edge_weight = data[BUYS].edge_index[0] * 100.0 + data[BUYS].edge_index[1]
    data[LIKE].edge_index = torch.randint(ITEMS, (2, 90), generator=generator)
    return cohort.from_pyg(data, tmp_path / "shop", reverse_edges=True)


def edges_of(data, relation) -> list[tuple[int, int]]:
    return list(map(tuple, data.edge_types[relation].edge_index().T.tolist()))


@pytest.mark.parametrize(("name", "relation"), [("buys", BUYS), ("item:rev_buys:user", REV_BUYS), ("like", LIKE)])
def test_held_out_edges_and_their_reverse_leave_the_graph(shop, tmp_path, name, relation):
    out = split_links(shop, tmp_path / "out", relation=name, shares=(0.1, 0.2), negatives=8)
    before, after, held = open_dataset(shop), open_dataset(out), held_out(out)
    reverse = {BUYS: REV_BUYS, REV_BUYS: BUYS, LIKE: REV_LIKE}[relation]
    links = {split: set(map(tuple, held[split].pairs.tolist())) for split in held}
    gone = links["val"] | links["test"]
    every = {pair for pair in edges_of(before, relation) if relation != LIKE or pair[0] != pair[1]}
    assert not links["val"] & links["test"] and gone < every
    assert [len(links[split]) for split in ("val", "test")] == [round(0.1 * len(every)), round(0.2 * len(every))]
    assert edges_of(after, relation) == [pair for pair in edges_of(before, relation) if pair not in gone]
    backward = [pair for pair in edges_of(before, reverse) if pair[::-1] not in gone]
    assert edges_of(after, reverse) == backward and len(backward) == len(edges_of(after, relation))
    for other in before.edge_types.keys() - {relation, reverse}:
        assert edges_of(after, other) == edges_of(before, other)
    for bought, (users, items) in ((BUYS, (0, 1)), (REV_BUYS, (1, 0))):
        left = after.to_pyg()[bought]
        assert left.edge_weight.tolist() == (100 * left.edge_index[users] + left.edge_index[items]).tolist()
    np.testing.assert_array_equal(after.node_types["item"].x, before.node_types["item"].x)
    assert after.y.tolist() == before.y.tolist() and after.name == "out"
    for links_of in held.values():
        assert links_of.negatives.shape == (len(links_of.pairs), 8)
        sources = links_of.pairs[:, :1].repeat(8, axis=1)
        assert not every & set(zip(sources.ravel().tolist(), links_of.negatives.ravel().tolist(), strict=True))


def test_a_relation_without_a_reverse_is_its_own_within_one_type(shop, tmp_path):
    data = open_dataset(shop).to_pyg()
    del data[REV_LIKE]
    shop = cohort.from_pyg(data, tmp_path / "set")
    out = split_links(shop, tmp_path / "out", relation="like")
    held = held_out(out)
    gone = {pair for links in held.values() for pair in map(tuple, links.pairs.tolist())}
    kept = [pair for pair in edges_of(open_dataset(shop), LIKE) if pair not in gone and pair[::-1] not in gone]
    assert edges_of(open_dataset(out), LIKE) == kept


def test_the_command_names_the_relation(shop, tmp_path, capsys):
    words = ["dataset", "split-links", str(shop), str(tmp_path / "out")]
    assert main(words) == 1
    told = " ".join(capsys.readouterr().err.split())
    assert "--relation: expected the name of one relation" in told and "user:buys:item" in told
    assert main([*words, "--relation", "rents"]) == 1 and "found rents" in capsys.readouterr().err
    assert main([*words, "--relation", "buys", "--negatives", "7"]) == 0
    assert main(["dataset", "check", str(tmp_path / "out")]) == 0
    assert main(["dataset", "info", str(tmp_path / "out")]) == 0
    assert "with 7, 7 negatives each, of user:buys:item" in capsys.readouterr().out


def test_links_of_ones_own_and_damaged_ones(shop):
    def of_pairs(pairs) -> dict:
        return dict.fromkeys(("val", "test"), (np.array(pairs), np.array([[0]] * len(pairs))))

    with pytest.warns(UserWarning, match="are edges of the graph"):
        write_links(shop, relation="buys", **of_pairs(edges_of(open_dataset(shop), BUYS)[:3]))
    with pytest.raises(CohortError, match=rf"val: pairs: expected node ids in \[0, {ITEMS}\)"):
        write_links(shop, relation="buys", **of_pairs([[USERS - 1, ITEMS]]))
    assert len(held_out(shop)["val"].pairs) == 3
    write_links(shop, relation="rev_like", **of_pairs([[0, 0]]))
    with pytest.raises(CohortError, match="--relation"):
        held_out(shop)
    assert len(held_out(shop, "rev_like")["val"].pairs) == 1
    np.save(shop / "item.rev_like.item.val_links.npy", np.array([[0, ITEMS]]))
    refused(here("dataset", "check", shop), 1, "item.rev_like.item.val_links.npy")
