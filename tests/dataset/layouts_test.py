"""Other libraries' layouts: each comes back with the edges, rows, labels and splits that were written."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from import_helpers import imported, refusal
from layout_writers import (
    assert_holds,
    sample,
    write_csv_gz,
    write_graphbolt,
    write_igb,
    write_legion,
    write_ogb,
    write_ogb_links,
)

from cohort_gnn.dataset import held_out

# --- OGB ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("binary", [False, True])
def test_ogb_comes_back(tmp_path, binary):
    graph = sample()
    data = imported(write_ogb(tmp_path / "ogbn_small", graph, binary))
    assert_holds(data, graph)
    assert data.name == "ogbn_small"


def test_ogb_products_gets_the_reverse_edges_that_ogb_adds(tmp_path):
    graph, notes = sample(), []
    write_ogb(tmp_path / "ogbn_products", graph)
    data = imported(tmp_path / "ogbn_products", note=notes.append)
    assert_holds(data, graph, np.concatenate([graph.edge_index, graph.edge_index[::-1]], axis=1))
    assert "--no-reverse-edges" in notes[0] and notes[-1] == "edges: undirected (each in both directions)"
    assert_holds(imported(tmp_path / "ogbn_products", reverse=False), graph)


def test_ogb_splits_may_be_tensors(tmp_path):
    graph = sample()
    split = write_ogb(tmp_path / "ogb", graph) / "split" / "time"
    ids = dict(zip(("train", "valid", "test"), map(torch.from_numpy, graph.splits), strict=True))
    torch.save(ids, split / "split_dict.pt")
    (split / "train.csv.gz").unlink()
    assert_holds(imported(tmp_path / "ogb"), graph)


@pytest.mark.parametrize("shared", [False, True], ids=["citation2", "collab"])
def test_ogb_links_come_back(tmp_path, shared):
    graph = sample()
    name = "ogbl_collab" if shared else "ogbl_citation2"
    links = write_ogb_links(tmp_path / name, graph, shared)
    data = imported(tmp_path / name)
    held = held_out(data.path)
    assert data.num_edges == graph.edge_index.shape[1] * (2 if shared else 1) and len(data.train_ids) == 0
    for split, (pairs, negatives) in links.items():
        assert held[split].shared == shared
        assert held[split].pairs.tolist() == pairs.tolist() and held[split].negatives.tolist() == negatives.tolist()
    assert refusal(tmp_path / name, transpose=True).place == "--transpose"


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
        error = refusal(root)
        assert expected in error.expected and found in error.found
    file.unlink()
    assert "a file of OGB's raw layout" in refusal(root).expected


@pytest.mark.parametrize("key", ["edge_index", "num_nodes_list"])
def test_binary_ogb_without_an_array_is_refused(tmp_path, key):
    raw = write_ogb(tmp_path / "ogb", sample(), binary=True) / "raw"
    arrays = dict(np.load(raw / "data.npz"))
    del arrays[key]
    np.savez(raw / "data.npz", **arrays)
    assert f"an array {key}" in refusal(tmp_path / "ogb").expected


@pytest.mark.parametrize("binary", [False, True])
def test_ogb_with_another_number_of_edges_is_refused(tmp_path, binary):
    graph = sample()
    root, count = write_ogb(tmp_path / "ogb", graph, binary), graph.edge_index.shape[1]
    if binary:
        arrays = dict(np.load(root / "raw/data.npz"))
        np.savez(root / "raw/data.npz", **arrays | {"edge_index": graph.edge_index[:, 1:]})
    else:
        write_csv_gz(root / "raw/edge.csv.gz", graph.edge_index.T[1:])
    error = refusal(root)
    assert error.expected.startswith(f"{count} edges, as ") and error.found == str(count - 1)


def test_a_folder_of_a_data_set_is_named(tmp_path):
    write_ogb(tmp_path / "dataset" / "ogbn_small", sample())
    assert refusal(tmp_path / "dataset").hint == f"name {tmp_path / 'dataset' / 'ogbn_small'}"


# --- IGB, Legion, GraphBolt -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("bare", [False, True])
@pytest.mark.parametrize("inside", ["", "processed"])
def test_igb_comes_back(tmp_path, bare, inside):
    graph = sample(dim=1024)
    labelled = np.flatnonzero(graph.y >= 0)
    graph.splits = np.split(labelled, [int(0.6 * len(labelled)), int(0.6 * len(labelled)) + int(0.2 * len(labelled))])
    write_igb(tmp_path / "tiny", graph, bare)
    data = imported(tmp_path / "tiny" / inside)
    assert_holds(data, graph)
    assert data.name == "igb-tiny"


def test_legion_comes_back(tmp_path):
    graph = sample(num_edges=3000)
    assert_holds(imported(write_legion(tmp_path / "legion", graph)), graph)


def test_legion_without_features_wants_to_be_told(tmp_path):
    write_legion(tmp_path / "legion", sample())
    for name in ("features", "labels", "trainingset"):
        (tmp_path / "legion" / name).unlink()
    assert "--features ones" in refusal(tmp_path / "legion").hint
    data = imported(tmp_path / "legion", features="ones")
    assert (data.x == 1).all() and data.x.shape == (60, 1) and (data.y == -1).all() and len(data.train_ids) == 0


@pytest.mark.parametrize("edge_format", ["csv", "numpy"])
@pytest.mark.parametrize("array_format", ["numpy", "torch"])
def test_graphbolt_comes_back(tmp_path, edge_format, array_format):
    graph = sample()
    named = np.concatenate(graph.splits)
    graph.y[~np.isin(np.arange(graph.num_nodes), named)] = -1  # GraphBolt has the labels of its sets alone
    data = imported(write_graphbolt(tmp_path / "set", graph, edge_format, array_format))
    assert_holds(data, graph)
    assert data.num_classes == 7


def test_without_pyyaml_the_cure_is_named(tmp_path, monkeypatch):
    write_graphbolt(tmp_path / "set", sample())
    monkeypatch.setitem(__import__("sys").modules, "yaml", None)
    assert refusal(tmp_path / "set").hint == "python -m pip install pyyaml"


@pytest.mark.parametrize("form", ["yaml", "ogb", "mag240m", "igb", "igbh", "legion", "graphbolt", "dgl", "npz"])
def test_a_folder_of_another_format_is_refused(tmp_path, form):
    if form in ("yaml", "graphbolt"):
        pytest.importorskip("yaml")
    (tmp_path / "empty").mkdir()
    assert str(tmp_path / "empty") in refusal(tmp_path / "empty", format=form).place


def test_an_unknown_source_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "a.doc").write_text("")
    assert "--format csv|parquet" in refusal(tmp_path / "empty").hint
    assert "a.doc" in refusal(tmp_path / "a.doc").found
    assert "no such file" in refusal(tmp_path / "none").found
    assert "auto or csv" in refusal(tmp_path / "a.doc", format="hdf5").expected
