"""Other libraries' layouts of several types: each comes back as it was written, and damaged ones are refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from import_helpers import cut, pickled, refusal
from layout_writers import write_csv_gz
from typed_layout_writers import (
    assert_holds,
    sample,
    write_chunked,
    write_graphbolt,
    write_igbh,
    write_mag240m,
    write_ogb,
)

from cohort_gnn.dataset import Dataset, import_graph
from cohort_gnn.dataset import open as open_dataset

ALL = ("author", "institution", "paper")


def save(name, array):
    return lambda root: np.save(root / name, array)


def drop(name):
    return lambda root: (root / name).unlink()


def assert_refused(tmp_path, write, case):
    change, place, expected, found = case
    change(write)
    error = refusal(write, tmp_path / "out")
    assert place in error.place and expected in error.expected and found in error.found, error


# --- OGB ------------------------------------------------------------------------------------------------------------


def test_ogb_comes_back(tmp_path):
    write_ogb(tmp_path / "ogbn_mag", sample())
    import_graph(tmp_path / "ogbn_mag", tmp_path / "out", memory=16_000_000)
    assert_holds(tmp_path / "out", sample())
    assert open_dataset(tmp_path / "out").name == "ogbn_mag"


AUTHORS = "raw/relations/author___writes___paper/edge.csv.gz"
TYPES = "raw/triplet-type-list.csv.gz"
OGB_BAD = {
    "edges": (drop(AUTHORS), "writes", "a file of OGB's raw layout", "no such file"),
    "counts": (drop("raw/num-node-dict.csv.gz"), "num-node-dict", "a file of OGB's raw layout", "no such file"),
    "labels": (drop("raw/node-label/paper/node-label.csv.gz"), "raw", "labels of one node type", "none"),
    "split": (drop("split/time/paper/test.csv.gz"), "test.csv.gz", "a file of OGB's raw layout", "no such file"),
    "range": (
        lambda root: write_csv_gz(root / AUTHORS, np.array([[30, 0]])),
        "edge.csv.gz: source of edge 0",
        "a node of type author in [0, 30)",
        "30",
    ),
    "rows": (
        lambda root: write_csv_gz(root / "raw/node-feat/paper/node-feat.csv.gz", np.ones((51, 4))),
        "node-feat.csv.gz",
        "50 rows, one per node",
        "51",
    ),
    "types": (
        lambda root: write_csv_gz(root / "raw/triplet-type-list.csv.gz", np.ones(3)),
        "triplet",
        "a column 1",
        "",
    ),
    "type": (
        lambda root: write_csv_gz(root / TYPES, np.ones((1, 3))),
        "1.0___1.0___1.0",
        "a file of OGB's raw layout",
        "no such file",
    ),
    "number": (
        lambda root: write_csv_gz(root / "raw/num-node-dict.csv.gz", np.ones(2)),
        "num-node",
        "an integer",
        "1.0",
    ),
    "cut": (lambda root: cut(root / AUTHORS), "edge.csv.gz", "a whole text file", "end early"),
}


@pytest.mark.parametrize("name", OGB_BAD)
def test_bad_ogb_folders_are_refused(tmp_path, name):
    assert_refused(tmp_path, write_ogb(tmp_path / "ogbn_mag", sample()), OGB_BAD[name])


# --- MAG240M --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tensors", [False, True])
@pytest.mark.parametrize("inside", ["", "mag240m_kddcup2021"])
def test_mag240m_comes_back(tmp_path, tensors, inside):
    data = sample(dtype=torch.float16, dim=768)
    write_mag240m(tmp_path / "mag240m_kddcup2021", data, tensors)
    import_graph(tmp_path / inside, tmp_path / "out", memory=16_000_000)
    assert_holds(tmp_path / "out", data)
    found = open_dataset(tmp_path / "out")
    assert (found.name, found.num_classes, found.node_types["paper"].feature_dtype) == ("mag240m", 3, "float16")


WRITES = "processed/author___writes___paper/edge_index.npy"
MAG240M_BAD = {
    "edges": (drop(WRITES), "edge_index.npy", "a readable file", "No such file"),
    "label": (drop("processed/paper/node_label.npy"), "node_label.npy", "a readable file", "No such file"),
    "split": (drop("split_dict.pt"), "split_dict.pt", "only tensors", "No such file"),
    "dtype": (save(WRITES, np.ones((2, 3))), "edge_index.npy", "integers", "float64"),
    "shape": (save(WRITES, np.ones((3, 4), int)), "edge_index.npy", "[2, E] or [E, 2]", "[3, 4]"),
    "range": (save(WRITES, np.array([[0], [50]])), "destination of edge 0", "a node of type paper in [0, 50)", "50"),
    "rows": (save("processed/paper/node_feat.npy", np.ones((9, 2))), "node_feat.npy", "50 rows", "9"),
    "flat": (save("processed/paper/node_feat.npy", np.ones(50)), "node_feat.npy", "shape [any, any]", "[50]"),
    "labels": (save("processed/paper/node_label.npy", np.ones(51)), "node_label.npy", "shape [50]", "[51]"),
    "meta": (
        lambda root: torch.save({"paper": 50}, root / "meta.pt"),
        "author",
        "one of the node types paper",
        "author",
    ),
    "keys": (
        lambda root: torch.save({"train": 1}, root / "split_dict.pt"),
        "split_dict.pt: train",
        "shape [any]",
        "[]",
    ),
    "list": (lambda root: torch.save([1], root / "split_dict.pt"), "split_dict.pt", "a dict of arrays", "list"),
    "pickle": (lambda root: pickled(root / "meta.pt"), "meta.pt", "only tensors", ""),
    "cut": (lambda root: cut(root / "split_dict.pt"), "split_dict.pt", "only tensors", ""),
}


@pytest.mark.parametrize("name", MAG240M_BAD)
def test_bad_mag240m_folders_are_refused(tmp_path, name):
    assert_refused(tmp_path, write_mag240m(tmp_path / "mag", sample()), MAG240M_BAD[name])


# --- IGB ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bare", [False, True])
@pytest.mark.parametrize("inside", ["", "processed"])
def test_igbh_comes_back(tmp_path, bare, inside):
    data = sample(ALL, dim=1024)
    bounds = {"train_mask": (0, 22), "val_mask": (22, 29), "test_mask": (29, 37)}  # 60, 20 and 20 % of 37
    for name, (first, last) in bounds.items():
        data["paper"][name] = (torch.arange(50) >= first) & (torch.arange(50) < last)
    write_igbh(tmp_path / "tiny", data, bare)
    import_graph(tmp_path / "tiny" / inside, tmp_path / "out", memory=16_000_000)
    assert_holds(tmp_path / "out", data)
    import_graph(tmp_path / "tiny" / inside, tmp_path / "papers", format="igb")
    papers = open_dataset(tmp_path / "papers")
    assert isinstance(papers, Dataset) and papers.num_nodes == 50 and papers.num_edges == 90


AFFILIATED = "processed/author__affiliated_with__institution/edge_index.npy"
IGBH_BAD = {
    "rows": (drop("processed/author/node_feat.npy"), "author/node_feat.npy", "a readable file", "No such file"),
    "labels": (drop("processed/paper/node_label_19.npy"), "paper", "node_label_19.npy or", "neither"),
    "edges": (drop(AFFILIATED), "edge_index.npy", "a readable file", "No such file"),
    "range": (save(AFFILIATED, np.array([[0, 5]] * 3)), "destination of edge 0", "type institution in [0, 5)", "5"),
    "bare": (
        lambda root: (root / "processed/author/node_feat.npy").write_bytes(b"123"),
        "author",
        "rows of 1024",
        "3 b",
    ),
    "name": (lambda root: (root / "processed/a__b__c__d").mkdir(), "a__b__c__d", "a relation source__name", "a__b"),
}


@pytest.mark.parametrize("name", IGBH_BAD)
def test_bad_igbh_folders_are_refused(tmp_path, name):
    assert_refused(tmp_path, write_igbh(tmp_path / "tiny", sample(ALL, dim=1024)), IGBH_BAD[name])


# --- GraphBolt and DGL's chunks ---------------------------------------------------------------------------------------


def edit(file, *path, **values):
    """Changes members of a part of a JSON file; None removes one."""

    def change(root):
        found = part = json.loads((root / file).read_text())
        for key in path:
            part = part[key]
        for key, value in values.items():
            part[key] = value
            if value is None:
                del part[key]
        (root / file).write_text(json.dumps(found))

    return change


def test_graphbolt_comes_back(tmp_path):
    pytest.importorskip("yaml")
    data = sample(("paper", "author"))
    write_graphbolt(tmp_path / "bolt", data)
    import_graph(tmp_path / "bolt", tmp_path / "out", memory=16_000_000)
    assert_holds(tmp_path / "out", data)
    assert open_dataset(tmp_path / "out").name == "bolt"


BOLT, SETS = "metadata.yaml", ("train", "validation", "test")
GRAPHBOLT_BAD = {
    "type": (
        edit(BOLT, "graph", "edges", 0, type="author:writes"),
        "type of edges",
        "a relation source:name:target",
        "",
    ),
    "unknown": (
        edit(BOLT, "graph", "edges", 0, type="a:writes:paper"),
        "a, writes, paper",
        "one of the node types",
        "a",
    ),
    "again": (edit(BOLT, "graph", "nodes", 0, type="paper"), BOLT, "each node type once", "3 entries"),
    "target": (edit(BOLT, "tasks", 0, "test_set", 0, type="author"), BOLT, "a task of one node type", "author, paper"),
    "venue": (
        lambda root: [
            edit(BOLT, "tasks", 0, f"{s}_set", 0, type="venue")(root) for s in ("train", "validation", "test")
        ],
        "the type that has labels",
        "one of the node types",
        "venue",
    ),
    "num": (
        edit(BOLT, "graph", "nodes", 0, num="many"),
        "graph.nodes[0].num",
        "an integer",
        "a text",
    ),
    "none": (edit(BOLT, "graph", "nodes", 0, num=0), BOLT, "num, the number of nodes", "0"),
    "file": (drop("edges-1.npy"), "edges-1.npy", "a readable file", "No such file"),
    "range": (
        save("edges-1.npy", np.array([[30], [0]])),
        "edges-1.npy: source of edge 0",
        "type author in [0, 30)",
        "30",
    ),
}


@pytest.mark.parametrize("name", GRAPHBOLT_BAD)
def test_bad_graphbolt_folders_are_refused(tmp_path, name):
    pytest.importorskip("yaml")
    assert_refused(tmp_path, write_graphbolt(tmp_path / "bolt", sample()), GRAPHBOLT_BAD[name])


@pytest.mark.parametrize("form", ["numpy", "csv", "parquet"])
def test_chunks_come_back(tmp_path, form):
    data = sample(("paper", "author"))
    write_chunked(tmp_path / "chunks", data, form)
    import_graph(tmp_path / "chunks", tmp_path / "out", memory=16_000_000)
    assert_holds(tmp_path / "out", data)
    assert open_dataset(tmp_path / "out").name == "chunks"


CHUNKS, WRITTEN = "metadata.json", ("edges", "author:writes:paper")
CHUNKED_BAD = {
    "json": (lambda root: (root / CHUNKS).write_text("{"), CHUNKS, "JSON", '"{"'),
    "member": (edit(CHUNKS, edges=None), CHUNKS, "the key edges", "none"),
    "counts": (
        edit(CHUNKS, num_nodes_per_chunk=[[3]]),
        "num_nodes_per_chunk",
        "one entry for each node type",
        "1 for author",
    ),
    "again": (edit(CHUNKS, node_type=["a", "b", "a"]), "num_nodes_per_chunk", "each node type, of", "3 for a, b, a"),
    "relation": (
        edit(CHUNKS, "edges", **{"author:writes:paper": None}),
        "edges",
        "the relation author:writes:p",
        "cites",
    ),
    "type": (edit(CHUNKS, edge_type=["author:paper"]), CHUNKS, "a relation source:name:target", "author:paper"),
    "format": (edit(CHUNKS, *WRITTEN, format={"name": "orc"}), CHUNKS, "format numpy, parquet or csv", "orc"),
    "file": (edit(CHUNKS, *WRITTEN, data=["no.npy"]), "no.npy", "a readable file", "No such file"),
    "outside": (edit(CHUNKS, *WRITTEN, data=["../e.npy"]), CHUNKS, "a file in the folder", "../e.npy"),
    "label": (edit(CHUNKS, "node_data", "paper", label=None), CHUNKS, "labels of one node type", "none"),
    "count": (edit(CHUNKS, num_nodes_per_chunk=[[30], [5], [51]]), "feat of paper", "51 rows", "50"),
    "range": (save("edges-1-1.npy", np.array([[0, 50], [0, 0]])), "edge 118", "a node of type paper in [0, 50)", "50"),
    "width": (save("feat-paper-1.npy", np.ones((2, 3), np.float32)), "feat-paper-1.npy", "shape [any, 4]", "[2, 3]"),
    "dtypes": (
        save("feat-paper-1.npy", np.ones((2, 4), np.float16)),
        "feat of paper",
        "files of one type",
        "float16, f",
    ),
    "mask": (save("val_mask-1.npy", np.array([0, 7])), "val_mask", "True or False", "dtype int64"),
}


@pytest.mark.parametrize("name", CHUNKED_BAD)
def test_bad_chunks_are_refused(tmp_path, name):
    assert_refused(tmp_path, write_chunked(tmp_path / "chunks", sample()), CHUNKED_BAD[name])


def test_chunks_of_one_type_become_a_graph_without_types(tmp_path):
    root = write_chunked(tmp_path / "chunks", sample())
    paper = "paper:cites:paper"
    edit(CHUNKS, node_type=["paper"], num_nodes_per_chunk=[[50]], edge_type=[paper])(root)
    import_graph(root / CHUNKS, tmp_path / "out")
    found = open_dataset(tmp_path / "out")
    assert isinstance(found, Dataset) and found.num_edges == 90 and len(found.train_ids) == 20
