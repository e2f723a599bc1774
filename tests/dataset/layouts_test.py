"""Other libraries' layouts: each comes back with the edges, rows, labels and splits that were written."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from import_helpers import refusal
from layout_writers import (
    assert_holds,
    sample,
    write_graphbolt,
    write_igb,
    write_legion,
    write_ogb,
    write_ogb_links,
)

from cohort_gnn.dataset import held_out, import_graph
from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.dataset.importing.beside import SourceOptions

# --- OGB ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("binary", [False, True])
def test_ogb_comes_back(tmp_path, binary):
    graph = sample()
    write_ogb(tmp_path / "ogbn_small", graph, binary)
    import_graph(tmp_path / "ogbn_small", tmp_path / "out")
    assert_holds(tmp_path / "out", graph)
    assert open_dataset(tmp_path / "out").name == "ogbn_small"


def test_ogb_products_gets_the_reverse_edges_that_ogb_adds(tmp_path):
    graph, notes = sample(), []
    write_ogb(tmp_path / "ogbn_products", graph)
    import_graph(tmp_path / "ogbn_products", tmp_path / "both", note=notes.append)
    assert_holds(tmp_path / "both", graph, np.concatenate([graph.edge_index, graph.edge_index[::-1]], axis=1))
    assert "--no-reverse-edges" in notes[0] and notes[-1] == "edges: undirected (each in both directions)"
    import_graph(tmp_path / "ogbn_products", tmp_path / "one", reverse=False)
    assert_holds(tmp_path / "one", graph)


def test_ogb_splits_may_be_tensors(tmp_path):
    graph = sample()
    split = write_ogb(tmp_path / "ogb", graph) / "split" / "time"
    ids = dict(zip(("train", "valid", "test"), map(torch.from_numpy, graph.splits), strict=True))
    torch.save(ids, split / "split_dict.pt")
    (split / "train.csv.gz").unlink()
    import_graph(tmp_path / "ogb", tmp_path / "out")
    assert_holds(tmp_path / "out", graph)


@pytest.mark.parametrize("shared", [False, True], ids=["citation2", "collab"])
def test_ogb_links_come_back(tmp_path, shared):
    graph = sample()
    name = "ogbl_collab" if shared else "ogbl_citation2"
    links = write_ogb_links(tmp_path / name, graph, shared)
    import_graph(tmp_path / name, tmp_path / "out")
    data, held = open_dataset(tmp_path / "out"), held_out(tmp_path / "out")
    assert data.num_edges == graph.edge_index.shape[1] * (2 if shared else 1) and len(data.train_ids) == 0
    for split, (pairs, negatives) in links.items():
        assert held[split].shared == shared
        assert held[split].pairs.tolist() == pairs.tolist() and held[split].negatives.tolist() == negatives.tolist()
    assert refusal(tmp_path / name, tmp_path / "other", transpose=True).place == "--transpose"


def test_bad_ogb_links_are_refused(tmp_path):
    root = tmp_path / "ogbl_small"
    links, file = write_ogb_links(root, sample(), False), root / "split" / "time" / "test.pt"
    (sources, targets), negatives = links["test"][0].T, links["test"][1]
    for parts, expected, found in (
        ({"head": sources, "relation": targets, "tail": targets}, "edge and edge_neg", "head, relation, tail"),
        ({"source_node": sources, "target_node": targets[1:], "target_node_neg": negatives}, "as many targets", "6"),
        ({"edge": links["test"][0] + 60, "edge_neg": links["test"][0]}, "node ids in [0, 60)", ".."),
        ({"edge": links["test"][0], "edge_neg": negatives}, "[m, 2] node ids", "[7, 6]"),
        ({"edge": links["test"][0] + 0.5, "edge_neg": negatives}, "integers", "float64"),
    ):
        torch.save(parts, file)
        error = refusal(root, tmp_path / "out")
        assert expected in error.expected and found in error.found
    file.unlink()
    assert "a file of OGB's raw layout" in refusal(root, tmp_path / "out").expected


@pytest.mark.parametrize("key", ["edge_index", "num_nodes_list"])
def test_binary_ogb_without_an_array_is_refused(tmp_path, key):
    raw = write_ogb(tmp_path / "ogb", sample(), binary=True) / "raw"
    arrays = dict(np.load(raw / "data.npz"))
    del arrays[key]
    np.savez(raw / "data.npz", **arrays)
    assert f"an array {key}" in refusal(tmp_path / "ogb", tmp_path / "out").expected


# --- IGB, Legion, GraphBolt -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("bare", [False, True])
@pytest.mark.parametrize("inside", ["", "processed"])
def test_igb_comes_back(tmp_path, bare, inside):
    graph = sample(dim=1024)
    labelled = np.flatnonzero(graph.y >= 0)
    graph.splits = np.split(labelled, [int(0.6 * len(labelled)), int(0.6 * len(labelled)) + int(0.2 * len(labelled))])
    write_igb(tmp_path / "tiny", graph, bare)
    import_graph(tmp_path / "tiny" / inside, tmp_path / "out")
    assert_holds(tmp_path / "out", graph)
    assert open_dataset(tmp_path / "out").name == "igb-tiny"


def test_legion_comes_back(tmp_path):
    graph = sample(num_edges=3000)
    write_legion(tmp_path / "legion", graph)
    import_graph(tmp_path / "legion", tmp_path / "out")
    assert_holds(tmp_path / "out", graph)


def test_legion_without_features_wants_to_be_told(tmp_path):
    write_legion(tmp_path / "legion", sample())
    for name in ("features", "labels", "trainingset"):
        (tmp_path / "legion" / name).unlink()
    assert "--features ones" in refusal(tmp_path / "legion", tmp_path / "out").hint
    import_graph(tmp_path / "legion", tmp_path / "out", inputs=SourceOptions(features="ones"))
    data = open_dataset(tmp_path / "out")
    assert (data.x == 1).all() and data.x.shape == (60, 1) and (data.y == -1).all() and len(data.train_ids) == 0


@pytest.mark.parametrize("edge_format", ["csv", "numpy"])
@pytest.mark.parametrize("array_format", ["numpy", "torch"])
def test_graphbolt_comes_back(tmp_path, edge_format, array_format):
    pytest.importorskip("yaml")
    graph = sample()
    named = np.concatenate(graph.splits)
    graph.y[~np.isin(np.arange(graph.num_nodes), named)] = -1  # GraphBolt has the labels of its sets alone
    write_graphbolt(tmp_path / "set", graph, edge_format, array_format)
    import_graph(tmp_path / "set", tmp_path / "out")
    assert_holds(tmp_path / "out", graph)
    assert open_dataset(tmp_path / "out").num_classes == 7


def test_without_pyyaml_the_cure_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "yaml", None)
    write_graphbolt(tmp_path / "set", sample())
    assert refusal(tmp_path / "set", tmp_path / "out").hint == "python -m pip install pyyaml"


@pytest.mark.parametrize("form", ["yaml", "ogb", "mag240m", "igb", "igbh", "legion", "graphbolt", "dgl", "npz"])
def test_a_folder_of_another_format_is_refused(tmp_path, form):
    if form in ("yaml", "graphbolt"):
        pytest.importorskip("yaml")
    (tmp_path / "empty").mkdir()
    assert str(tmp_path / "empty") in refusal(tmp_path / "empty", tmp_path / "out", format=form).place


def test_an_unknown_source_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "a.doc").write_text("")
    assert "--format csv|parquet" in refusal(tmp_path / "empty", tmp_path / "out").hint
    assert "a.doc" in refusal(tmp_path / "a.doc", tmp_path / "out").found
    assert "no such file" in refusal(tmp_path / "none", tmp_path / "out").found
    assert "auto or csv" in refusal(tmp_path / "a.doc", tmp_path / "out", format="hdf5").expected
