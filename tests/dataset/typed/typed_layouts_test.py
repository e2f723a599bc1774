"""Other libraries' layouts of several types: each comes back as it was written."""

from __future__ import annotations

import json

import pytest
import torch
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


# --- OGB ------------------------------------------------------------------------------------------------------------


def test_ogb_comes_back(tmp_path):
    write_ogb(tmp_path / "ogbn_mag", sample())
    import_graph(tmp_path / "ogbn_mag", tmp_path / "out", memory=16_000_000)
    assert_holds(tmp_path / "out", sample())
    assert open_dataset(tmp_path / "out").name == "ogbn_mag"


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


# --- GraphBolt and DGL's chunks ---------------------------------------------------------------------------------------


def test_graphbolt_comes_back(tmp_path):
    pytest.importorskip("yaml")
    data = sample(("paper", "author"))
    write_graphbolt(tmp_path / "bolt", data)
    import_graph(tmp_path / "bolt", tmp_path / "out", memory=16_000_000)
    assert_holds(tmp_path / "out", data)
    assert open_dataset(tmp_path / "out").name == "bolt"


@pytest.mark.parametrize("form", ["numpy", "csv", "parquet"])
def test_chunks_come_back(tmp_path, form):
    data = sample(("paper", "author"))
    write_chunked(tmp_path / "chunks", data, form)
    import_graph(tmp_path / "chunks", tmp_path / "out", memory=16_000_000)
    assert_holds(tmp_path / "out", data)
    assert open_dataset(tmp_path / "out").name == "chunks"


def test_chunks_of_one_type_become_a_graph_without_types(tmp_path):
    root = write_chunked(tmp_path / "chunks", sample())
    paper = "paper:cites:paper"
    described = json.loads((root / "metadata.json").read_text())
    described |= {"node_type": ["paper"], "num_nodes_per_chunk": [[50]], "edge_type": [paper]}
    (root / "metadata.json").write_text(json.dumps(described))
    import_graph(root / "metadata.json", tmp_path / "out")
    found = open_dataset(tmp_path / "out")
    assert isinstance(found, Dataset) and found.num_edges == 90 and len(found.train_ids) == 20
