"""Links that are held out of a data set: `cohort dataset split-links`, and the arrays beside the data set."""

from pathlib import Path

import numpy as np
import pytest
import torch
from processes import here, refused

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import from_tensors, held_out, open_one_type, split_links, write_links
from cohort_gnn.launch.main import main

NUM_NODES = 60


@pytest.fixture
def graph(tmp_path) -> Path:
    """Edges in one or both directions, some twice, two self loops; node 59 has none."""
    generator = torch.Generator().manual_seed(2)
    edges = torch.randint(NUM_NODES - 1, (2, 400), generator=generator)
    edges = edges[:, edges[0] != edges[1]]
    edges = torch.cat([edges, edges[:, :100].flip(0), edges[:, :30], torch.tensor([[3, 7], [3, 7]])], dim=1)
    x, y = torch.rand(NUM_NODES, 4, generator=generator), torch.randint(3, (NUM_NODES,), generator=generator)
    weights = edges[0] * 100.0 + edges[1]  # of an edge what it is
    return from_tensors(tmp_path / "graph", x=x, y=y, edge_index=edges, edge_weight=weights)


def edges_of(data) -> np.ndarray:
    """int64 [E, 2], source and target."""
    targets = np.repeat(np.arange(data.num_nodes), np.diff(data.indptr))
    return np.stack([data.indices.astype(np.int64), targets], axis=1)


def links_of(pairs: np.ndarray) -> set[tuple[int, int]]:
    return {(min(pair), max(pair)) for pair in pairs.tolist()}


def test_no_edge_of_a_held_out_link_is_left_in_either_direction(graph, tmp_path):
    out = split_links(graph, tmp_path / "out", shares=(0.1, 0.2), negatives=20, seed=1)
    before, after, held = open_one_type(graph), open_one_type(out), held_out(out)
    left, val, test = links_of(edges_of(after)), links_of(held["val"].pairs), links_of(held["test"].pairs)
    every = links_of(edges_of(before))
    assert left | val | test == every and not left & val and not left & test and not val & test
    num_links = len(every - {(3, 3), (7, 7)})
    assert (len(val), len(test)) == (round(0.1 * num_links), round(0.2 * num_links))
    assert {(3, 3), (7, 7)} <= left, "a self loop is no link"
    directed = set(map(tuple, edges_of(before).tolist()))
    for split, links in (("val", val), ("test", test)):
        pairs = set(map(tuple, held[split].pairs.tolist()))
        assert pairs == {pair for pair in directed if (min(pair), max(pair)) in links}, "each direction, once"
        assert len(pairs) == len(held[split].pairs)
    kept = [pair for pair in edges_of(before).tolist() if (min(pair), max(pair)) in left]
    assert edges_of(after).tolist() == kept, "in the order of before, parallel edges too"
    assert after.edge_weights.tolist() == [100 * source + target for source, target in kept]


def test_all_else_is_as_before(graph, tmp_path):
    before, after = open_one_type(graph), open_one_type(split_links(graph, tmp_path / "out"))
    assert after.name == "out" and after.num_classes == before.num_classes
    for name in ("x", "y", "train_ids", "val_ids", "test_ids"):
        assert np.array_equal(getattr(after, name), getattr(before, name))
    records = [(folder / "import.json").read_bytes() for folder in (graph, tmp_path / "out")]
    assert records[0] == records[1], "by which edges are appended"


def test_negatives_are_no_edges_of_the_whole_graph(graph, tmp_path):
    held = held_out(split_links(graph, tmp_path / "out", shares=(0.1, 0.2), negatives=50))
    directed = set(map(tuple, edges_of(open_one_type(graph)).tolist()))
    for links in held.values():
        assert links.negatives.shape == (len(links.pairs), 50)
        sources = np.repeat(links.pairs[:, 0], 50)
        drawn = np.stack([sources, links.negatives.ravel()], axis=1).tolist()
        assert not directed & set(map(tuple, drawn)) and all(source != target for source, target in drawn)
        assert len(np.unique(links.negatives)) == NUM_NODES, "all nodes are drawn"


def test_the_seed_alone_decides(graph, tmp_path):
    first, again, other = (
        held_out(split_links(graph, tmp_path / name, seed=seed)) for name, seed in (("a", 5), ("b", 5), ("c", 6))
    )
    for split in ("val", "test"):
        assert np.array_equal(first[split].pairs, again[split].pairs)
        assert np.array_equal(first[split].negatives, again[split].negatives)
    assert not np.array_equal(first["test"].pairs, other["test"].pairs)


def test_the_command_tells_of_held_out_links(graph, tmp_path, capsys):
    out = tmp_path / "out"
    words = ["dataset", "split-links", str(graph), str(out), "--shares", "0.1,0.1", "--negatives", "7"]
    assert main(words) == 0 and main(["dataset", "info", str(out)]) == 0
    held = held_out(out)
    told = f"val, test links   {len(held['val'].pairs)}, {len(held['test'].pairs)}, with 7, 7 negatives each"
    assert told in capsys.readouterr().out
    assert main(words) == 1 and "out" in capsys.readouterr().err, "it exists"
    assert main([*words, "--overwrite"]) == 0
    assert held_out(graph) == {}, "a data set without a split"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--shares", "0.5"], "--shares: expected the shares of validation and test"),
        (["--shares", "0.5,0.5"], "--shares: expected the shares of validation and test"),
        (["--shares", "0,0.0001"], "--shares: expected at least one link held out and one left, found 0 and 0 of"),
        (["--negatives", "0"], "--negatives: expected an integer in [1, 10000], found 0"),
    ],
)
def test_what_cannot_be_split_is_refused(graph, tmp_path, arguments, words):
    out = tmp_path / "out"
    refused(here("dataset", "split-links", graph, out, *arguments), 1, words)
    assert not out.exists()


def test_the_source_is_not_overwritten(graph, tmp_path):
    (tmp_path / "link").symlink_to(graph)
    before = edges_of(open_one_type(graph))
    for out in (graph, tmp_path / "link", graph / "../graph"):
        with pytest.raises(CohortError, match="expected another folder than that of the data set, found the same"):
            split_links(graph, out, overwrite=True)
    assert np.array_equal(edges_of(open_one_type(graph)), before)


def test_links_of_ones_own(graph, tmp_path):
    val = torch.tensor([[0, 59], [59, 1]]), torch.tensor([[1, 2, 3], [4, 5, 6]], dtype=torch.int32)
    test = np.array([[2, 59]]), np.array([[7]])
    write_links(graph, val=val, test=test)
    held = held_out(graph)
    for split, (pairs, negatives) in (("val", val), ("test", test)):
        assert held[split].pairs.tolist() == pairs.tolist()
        assert held[split].negatives.tolist() == negatives.tolist()
    an_edge = edges_of(open_one_type(graph))[:1]
    with pytest.warns(UserWarning, match="1 of 1 test links are edges of the graph"):
        write_links(graph, val=val, test=(an_edge, test[1]))
    assert held_out(graph)["test"].pairs.tolist() == an_edge.tolist()


def test_links_may_compete_with_the_same_pairs(graph, capsys):
    own = np.array([[0, 59], [59, 1]]), np.array([[1], [2]])
    shared = own[0], np.array([[3, 59], [59, 59], [59, 4]])
    write_links(graph, val=own, test=own)
    write_links(graph, val=shared, test=shared, shared=True)
    held = held_out(graph)
    assert held["val"].shared and held["test"].negatives.tolist() == shared[1].tolist()
    assert not (graph / "val_negatives.npy").exists() and main(["dataset", "info", str(graph)]) == 0
    assert "2, 2, with 3, 3 negative pairs" in capsys.readouterr().out
    with pytest.raises(CohortError, match=r"val: negatives: expected \[m, 2\] node ids, with m of at least 1"):
        write_links(graph, val=(own[0], own[1]), test=shared, shared=True)
    with pytest.raises(CohortError, match=r"val: negatives: expected node ids in \[0, 60\), found 60 .. 60"):
        write_links(graph, val=(own[0], np.array([[0, 60]])), test=shared, shared=True)


@pytest.mark.parametrize(
    ("val", "words"),
    [
        ((np.array([[0, 60]]), np.array([[1]])), r"val: pairs: expected node ids in \[0, 60\), found 60 .. 60"),
        ((np.array([[0, 1]]), np.array([[1], [2]])), r"val: negatives: expected \[1, K\] node ids"),
        ((np.array([[0.0, 1.0]]), np.array([[1]])), r"val: expected \(pairs, negatives\) of integers, found float64"),
        ((np.array([0, 1]), np.array([[1]])), r"val: pairs: expected int64 \[n, m\] node ids, found int64 \[2\]"),
    ],
)
def test_links_that_do_not_fit_are_refused(graph, val, words):
    with pytest.raises(CohortError, match=words):
        write_links(graph, val=val, test=(np.zeros((0, 2), int), np.zeros((0, 1), int)))
    assert held_out(graph) == {}


def test_damaged_arrays_are_told(graph, tmp_path):
    out = split_links(graph, tmp_path / "out")
    pairs = np.array(held_out(out)["test"].pairs)

    def refusal() -> str:
        assert main(["dataset", "check", str(out)]) == 1
        with pytest.raises(CohortError) as error:
            held_out(out)
        return f"{error.value}".replace(str(out), "")

    for array, words in (
        (pairs + NUM_NODES, "test_links.npy: expected node ids in [0, 60)"),
        (pairs.astype(np.int32), "test_links.npy: expected int64 [n, m] node ids, found int32"),
        (pairs[:, :1], "test_links.npy: expected [n, 2] node ids"),
        (pairs[1:], f"test_negatives.npy: expected [{len(pairs) - 1}, K] node ids"),
    ):
        np.save(out / "test_links.npy", array)
        assert words in refusal()
    (out / "test_negatives.npy").unlink()
    assert "test_negatives.npy" in refusal()
