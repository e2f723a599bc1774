"""Relations that have the edges of another in the other direction: found by their edges, or told."""

import json
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
import torch_geometric.transforms as T
from torch_geometric.data import HeteroData

import cohort_gnn as cohort
from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import held_out, split_links
from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.launch.main import main

USERS, ITEMS = 30, 20
BUYS, REV_BUYS, SOLD = ("user", "buys", "item"), ("item", "rev_buys", "user"), ("item", "sold_to", "user")
VIEWS, REV_VIEWS = ("user", "views", "item"), ("item", "rev_views", "user")
FOLLOWS, REV_FOLLOWS = ("user", "follows", "user"), ("user", "rev_follows", "user")


def shop(seed: int = 0, **edges: torch.Tensor) -> HeteroData:
    """Users and items, without edges but these: by the name of the relation."""
    data = HeteroData()
    data["item"].x, data["item"].y = torch.rand(ITEMS, 3), torch.arange(ITEMS) % 2
    data["user"].num_nodes = USERS
    for name, edge_index in edges.items():
        from_item, to_item = name in ("rev_buys", "sold_to", "rev_views"), name in ("buys", "views")
        data["item" if from_item else "user", name, "item" if to_item else "user"].edge_index = edge_index
    return data


def random_edges(seed: int, num: int = 80, sizes=(USERS, ITEMS)) -> torch.Tensor:
    """Some come twice."""
    generator = torch.Generator().manual_seed(seed)
    edges = torch.stack([torch.randint(size, (num,), generator=generator) for size in sizes])
    return torch.cat([edges, edges[:, : num // 8]], dim=1)


def named(folder: Path) -> dict:
    """What meta.json says: {relation: the one that it reverses}."""
    edges = json.loads((folder / "meta.json").read_text())["edges"]
    of = {tuple(each["type"]): each["reverse_of"] for each in edges if "reverse_of" in each}
    return {name: None if number is None else tuple(edges[number]["type"]) for name, number in of.items()}


def edges_of(folder: Path, relation) -> Counter:
    return Counter(map(tuple, open_dataset(folder).edge_types[relation].edge_index().T.tolist()))


def unmarked(folder: Path) -> Path:
    """The data set as one that was written before reverses were found."""
    meta = json.loads((folder / "meta.json").read_text())
    for edges in meta["edges"]:
        edges.pop("reverse_of", None)
    (folder / "meta.json").write_text(json.dumps(meta))
    return folder


def test_what_to_undirected_adds_is_named_as_the_reverse(tmp_path):
    data = shop(buys=random_edges(1), views=random_edges(2), follows=random_edges(3, sizes=(USERS, USERS)))
    folder = cohort.from_pyg(T.ToUndirected(merge=False)(data), tmp_path / "set")
    assert named(folder) == {REV_BUYS: BUYS, REV_VIEWS: VIEWS, REV_FOLLOWS: FOLLOWS}
    assert main(["dataset", "check", str(folder)]) == 0
    data = shop(rev_buys=random_edges(1).flip(0), buys=random_edges(1)[:, torch.randperm(90)])  # in another order
    assert named(cohort.from_pyg(data, tmp_path / "other")) == {REV_BUYS: BUYS}


@pytest.mark.parametrize("beside", ["edge_weight", "edge_time", "edge_attr"])
def test_what_edges_have_beside_does_not_matter(tmp_path, beside):
    data = shop(buys=random_edges(1), sold_to=random_edges(1).flip(0))
    for relation in (BUYS, SOLD):
        values = torch.randint(100, (90,))
        data[relation][beside] = torch.stack([values, values], dim=1).float() if beside == "edge_attr" else values
    assert named(cohort.from_pyg(data, tmp_path / "set")) == {SOLD: BUYS}


def test_reverse_edges_are_not_added_beside_a_reverse(tmp_path):
    data = shop(buys=random_edges(1), sold_to=random_edges(1).flip(0), views=random_edges(2))
    assert named(cohort.from_pyg(data, tmp_path / "set", reverse_edges=True)) == {SOLD: BUYS, REV_VIEWS: VIEWS}


def test_what_is_told_comes_first(tmp_path):
    data = shop(buys=random_edges(1), sold_to=random_edges(1).flip(0), rev_buys=random_edges(2).flip(0))
    told = {REV_BUYS: BUYS, SOLD: None}
    folder = cohort.from_pyg(data, tmp_path / "set", reverse_of=told)
    assert named(folder) == told
    assert open_dataset(folder).same_edges(BUYS) == [(BUYS, False), (REV_BUYS, True)]
    assert main(["dataset", "check", str(folder)]) == 0


@pytest.mark.parametrize(
    ("reverse_of", "message"),
    [
        ({("item", "sells", "user"): BUYS}, r"of a relation: .*'buys'.*, found \('item', 'sells', 'user'\)"),
        ({SOLD: ("user", "sells", "item")}, r"found \('user', 'sells', 'item'\)"),
        ({BUYS: VIEWS}, r"a relation from item to user, or None, for \('user', 'buys', 'item'\), found .*views"),
        ([SOLD], "a dict .*, found list"),
        ({None: BUYS}, "of a relation: .*, found None"),
    ],
)
def test_reverses_that_there_cannot_be_are_refused(tmp_path, reverse_of, message):
    data = shop(buys=random_edges(1), views=random_edges(2), sold_to=random_edges(3).flip(0))
    with pytest.raises(CohortError, match=message):
        cohort.from_pyg(data, tmp_path / "set", reverse_of=reverse_of)
    assert not (tmp_path / "set").exists()


def tables(folder: Path, **of_edges: str) -> Path:
    """graph.yaml of buys and sold_to, whose edges are others."""
    folder.mkdir()
    for name, edges in (("buys", random_edges(1)), ("sold_to", random_edges(2).flip(0))):
        np.save(folder / f"{name}.npy", edges.numpy())
    more = "".join(f"\n    {key}: {value}" for key, value in of_edges.items())
    (folder / "graph.yaml").write_text(f"""
nodes: {{user: {{count: {USERS}}}, item: {{count: {ITEMS}}}}}
target: item
edges:
  - {{type: [user, buys, item], file: buys.npy}}
  - type: [item, sold_to, user]
    file: sold_to.npy{more}
""")
    return folder


def test_files_and_the_command_tell_reverses(tmp_path, capsys):
    def imported(source: Path, *words: str) -> dict:
        out = tmp_path / "out"
        assert main(["dataset", "import", str(source), str(out), "--overwrite", *words]) == 0, capsys.readouterr().err
        return named(out)

    said = tables(tmp_path / "said", reverse_of="[user, buys, item]")
    assert imported(said) == {SOLD: BUYS}
    assert imported(said, "--reverse-of", "item:sold_to:user=none") == {SOLD: None}
    assert imported(tables(tmp_path / "none", reverse_of="none")) == {SOLD: None}
    silent = tables(tmp_path / "silent")
    assert imported(silent) == {}
    assert imported(silent, "--reverse-of", "item:sold_to:user=user:buys:item") == {SOLD: BUYS}
    words = ["dataset", "import", str(silent), str(tmp_path / "other"), "--reverse-of"]
    assert main([*words, "item:sold_to:user=item:sold_to:user"]) == 1
    assert "--reverse-of: expected a relation from user to item, or None" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([*words, "sold_to=buys"])
    assert "expected a relation source:name:target, found 'sold_to'" in capsys.readouterr().err


@pytest.mark.parametrize("marked", [True, False])
@pytest.mark.parametrize("name", ["buys", "rev_buys"])
def test_split_links_leaves_no_held_out_link(tmp_path, name, marked):
    """All relations that have the links' edges, also those of data sets that do not name reverses."""
    data = T.ToUndirected()(shop(buys=random_edges(1), sold_to=random_edges(1).flip(0), views=random_edges(2)))
    folder = cohort.from_pyg(data, tmp_path / "set")
    folder = folder if marked else unmarked(folder)
    out = split_links(folder, tmp_path / "out", relation=name, shares=(0.2, 0.2))
    links = {pair for split in held_out(out).values() for pair in map(tuple, split.pairs.tolist())}
    links = links if name == "buys" else {pair[::-1] for pair in links}
    there = [(BUYS, False), (REV_BUYS, True), (SOLD, True), (("user", "rev_sold_to", "item"), False)]
    for relation, is_reversed in there:
        gone = {pair[::-1] for pair in links} if is_reversed else links
        assert len(gone) > 20 and edges_of(folder, relation).keys() >= gone
        kept = Counter({pair: count for pair, count in edges_of(folder, relation).items() if pair not in gone})
        assert edges_of(out, relation) == kept
    assert edges_of(out, VIEWS) == edges_of(folder, VIEWS)
    assert len(named(out)) == 4, "all but the one that each of the others reverses, and views"


def test_split_links_within_one_type(tmp_path):
    follows = random_edges(3, sizes=(USERS, USERS))
    directed = cohort.from_pyg(shop(follows=follows, rev_follows=follows.flip(0)), tmp_path / "directed")
    both = torch.cat([follows, follows.flip(0)], dim=1)
    folders = {"directed": directed}
    folders["both"] = cohort.from_pyg(shop(follows=both, rev_follows=both.flip(0)), tmp_path / "both")
    folders["merged"] = cohort.from_pyg(T.ToUndirected()(shop(follows=follows, buys=follows % 20)), tmp_path / "merged")
    told = {FOLLOWS: None}
    folders["told"] = cohort.from_pyg(shop(follows=follows, buys=follows % 20), tmp_path / "told", reverse_of=told)
    for name, folder in folders.items():
        out = split_links(folder, tmp_path / f"{name}-split", relation="follows", shares=(0.2, 0.2))
        links = {pair for split in held_out(out).values() for pair in map(tuple, split.pairs.tolist())}
        back = {pair[::-1] for pair in links}
        gone = {FOLLOWS: links if name in ("directed", "told") else links | back}
        gone |= {REV_FOLLOWS: back if name == "directed" else links | back} if name in ("directed", "both") else {}
        for relation, pairs in gone.items():
            before, after = edges_of(folder, relation), edges_of(out, relation)
            assert after == Counter({pair: count for pair, count in before.items() if pair not in pairs}), name


def test_the_links_are_those_of_the_relation_that_is_no_reverse(tmp_path):
    folder = unmarked(cohort.from_pyg(T.ToUndirected()(shop(buys=random_edges(1))), tmp_path / "set"))
    assert held_out(split_links(folder, tmp_path / "out"))["val"].pairs[:, 0].max() >= ITEMS, "users are the sources"


def test_an_opposite_relation_of_other_edges_is_told(tmp_path, capsys):
    data = shop(buys=random_edges(1), sold_to=random_edges(1).flip(0)[:, 1:])
    folder, out = cohort.from_pyg(data, tmp_path / "set"), tmp_path / "out"
    with pytest.warns(UserWarning, match="opposite to .*buys.*, but not recognised as its reverse") as said:
        split_links(folder, out, relation="buys")
    (text,) = [str(each.message) for each in said]
    assert said[0].filename == __file__ and "sold_to has 89 edges, buys 90" in text
    assert f"from_pyg(..., reverse_of={{{SOLD}: {BUYS}}}), or None if it has not" in text
    assert "--reverse-of item:sold_to:user=user:buys:item (or =none if it is not)" in text
    for reverse_of in ({SOLD: BUYS}, {SOLD: None}, {BUYS: None}):
        told = cohort.from_pyg(data, tmp_path / "told", reverse_of=reverse_of, overwrite=True)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            split_links(told, out, relation="buys", shares=(0.2, 0.2), overwrite=True)
        links = {pair for split in held_out(out).values() for pair in map(tuple, split.pairs.tolist())}
        left = {pair[::-1] for pair in links} & edges_of(out, SOLD).keys()
        assert bool(left) == (reverse_of != {SOLD: BUYS})
