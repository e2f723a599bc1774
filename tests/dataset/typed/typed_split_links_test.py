"""Links that are held out of one relation of a graph of several types."""

from pathlib import Path

import numpy as np
import pytest
import torch
from processes import here, refused
from torch_geometric.data import HeteroData

import cohort_gnn as cohort
from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import held_out, write_links
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
