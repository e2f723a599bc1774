"""Other libraries' layouts of several types: each comes back as it was written."""

from __future__ import annotations

import pytest
import torch
import typed_layout_writers as writers
from damages import members
from import_helpers import imported
from typed_layout_writers import assert_holds, sample

from cohort_gnn.dataset import Dataset

ALL = ("author", "institution", "paper")


@pytest.mark.parametrize(
    ("write", "name", "options"),
    [
        ("ogb", "ogbn_mag", {}),
        ("graphbolt", "bolt", {}),
        *[("chunked", "chunks", {"form": form}) for form in ("numpy", "csv", "parquet")],
    ],
    ids=str,
)
def test_it_comes_back(tmp_path, write, name, options):
    data = sample() if write == "ogb" else sample(("paper", "author"))
    found = imported(getattr(writers, f"write_{write}")(tmp_path / name, data, **options), memory=16_000_000)
    assert_holds(found, data)
    assert found.name == name


@pytest.mark.parametrize("tensors", [False, True])
@pytest.mark.parametrize("inside", ["", "mag240m_kddcup2021"])
def test_mag240m_comes_back(tmp_path, tensors, inside):
    data, root = sample(dtype=torch.float16, dim=768), tmp_path / "root"
    writers.write_mag240m(root / "mag240m_kddcup2021", data, tensors)
    found = imported(root / inside, tmp_path / "out", memory=16_000_000)
    assert_holds(found, data)
    assert (found.name, found.num_classes, found.node_types["paper"].feature_dtype) == ("mag240m", 3, "float16")


@pytest.mark.parametrize("bare", [False, True])
@pytest.mark.parametrize("inside", ["", "processed"])
def test_igbh_comes_back(tmp_path, bare, inside):
    data = sample(ALL, dim=1024)
    bounds = {"train_mask": (0, 22), "val_mask": (22, 29), "test_mask": (29, 37)}  # 60, 20 and 20 % of 37
    for name, (first, last) in bounds.items():
        data["paper"][name] = (torch.arange(50) >= first) & (torch.arange(50) < last)
    source = writers.write_igbh(tmp_path / "tiny", data, bare) / inside
    assert_holds(imported(source, tmp_path / "out", memory=16_000_000), data)
    papers = imported(source, tmp_path / "papers", format="igb")
    assert isinstance(papers, Dataset) and papers.num_nodes == 50 and papers.num_edges == 90


def test_chunks_of_one_type_become_a_graph_without_types(tmp_path):
    root = writers.write_chunked(tmp_path / "chunks", sample())
    one = {"node_type": ["paper"], "num_nodes_per_chunk": [[50]], "edge_type": ["paper:cites:paper"]}
    members("metadata.json", **one)(root)
    found = imported(root / "metadata.json")
    assert isinstance(found, Dataset) and found.num_edges == 90 and len(found.train_ids) == 20
