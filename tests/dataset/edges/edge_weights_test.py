"""Weights of edges through importers, sorting, renumbering and generating; checked; refused where they do not fit."""

from __future__ import annotations

import collections
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from import_helpers import imported, refusal, write_npz
from layout_writers import sample

import cohort_gnn as cohort
from cohort_gnn import CohortError
from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.dataset.check import check

GRAPH = sample()
OF_NODES = {"features": "ones", "nodes": GRAPH.num_nodes}
SRC, DST = GRAPH.edge_index
WEIGHTS = (np.random.default_rng(9).integers(-8, 9, len(SRC)) / 4).astype(np.float32)


def weighted_edges(data) -> list[tuple[int, int, float]]:
    """(destination, source, weight), in the order of the files, of a data set or its folder."""
    data = open_dataset(data) if isinstance(data, Path) else data
    target = np.repeat(np.arange(data.num_nodes), np.diff(data.indptr))
    assert data.edge_weights.dtype == np.float32 and check(data.path) == []
    return list(zip(target.tolist(), data.indices.tolist(), data.edge_weights.tolist(), strict=True))


def by_bits(edges) -> list[tuple[int, int, float]]:
    """By destination and source, then by the bits of the weight."""
    return sorted(edges, key=lambda edge: (*edge[:2], int(np.float32(edge[2]).view(np.uint32))))


EXPECTED = by_bits(zip(DST.tolist(), SRC.tolist(), WEIGHTS.tolist(), strict=True))


def edge_list(folder: Path, kind: str) -> tuple[Path, dict]:
    """An edge list and what of SourceOptions names its weights."""
    if kind == "npy":
        np.save(folder / "edges.npy", GRAPH.edge_index)
        np.save(folder / "weights.npy", WEIGHTS[:, None])
        return folder / "edges.npy", {"edge_weights": folder / "weights.npy"}
    if kind == "parquet":
        pq.write_table(pa.table({"src": SRC, "dst": DST, "cost": WEIGHTS}), folder / "edges.parquet")
        return folder / "edges.parquet", {"weight_column": "cost"}
    table = np.column_stack([SRC, WEIGHTS.astype(object), DST])
    if kind == "named column":
        rows = "\n".join(",".join(map(str, row)) for row in table)
        (folder / "edges.csv").write_text(f"src,cost,dst\n{rows}\n")
        return folder / "edges.csv", {"weight_column": "cost"}
    (folder / "edges.edgelist").write_text("\n".join(f"{s} {d} {w!r}" for s, w, d in table.tolist()))
    if kind == "numbered column":
        return folder / "edges.edgelist", {"weight_column": "2"}
    (folder / "weights.csv").write_text("cost\n" + "\n".join(map(repr, WEIGHTS.tolist())))
    return folder / "edges.edgelist", {"edge_weights": folder / "weights.csv"}


@pytest.mark.parametrize("kind", ["npy", "named column", "numbered column", "csv beside text", "parquet"])
def test_an_edge_list_brings_its_weights(tmp_path, kind):
    source, given = edge_list(tmp_path, kind)
    assert weighted_edges(imported(source, **OF_NODES, **given)) == EXPECTED


@pytest.mark.parametrize("shape", [(-1,), (-1, 1)])
def test_pyg_files_and_objects_bring_their_weights(tmp_path, shape):
    """And an edge_attr with one number an edge is none."""
    from torch_geometric.data import Data

    weights = torch.from_numpy(WEIGHTS).reshape(shape)
    tensors = {"x": torch.from_numpy(GRAPH.x), "edge_index": torch.from_numpy(GRAPH.edge_index)}
    tensors |= {"y": torch.from_numpy(GRAPH.y), "edge_weight": weights}
    torch.save(tensors, tmp_path / "data.pt")
    for found in (imported(tmp_path / "data.pt"), cohort.from_pyg(Data(**tensors), tmp_path / "object")):
        assert weighted_edges(found) == EXPECTED
    tensors["edge_attr"] = tensors.pop("edge_weight").float()
    torch.save(tensors, tmp_path / "data.pt")
    data = imported(tmp_path / "data.pt")
    for folder in (data.path, cohort.from_pyg(Data(**tensors), tmp_path / "features")):
        written = open_dataset(folder)
        assert written.edge_weights is None and written.edge_attr.shape == (len(SRC), 1)


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_npz_brings_its_weights(tmp_path, kind):
    arrays = {"src": SRC, "dst": DST, "x": GRAPH.x, "labels": GRAPH.y, "edge_weights": WEIGHTS}
    assert weighted_edges(imported(write_npz(tmp_path / "in.npz", kind, arrays), format="npz")) == EXPECTED


def test_tensors_of_a_csc_bring_weights_and_to_pyg_gives_them_back(tmp_path):
    folder = cohort.from_tensors(
        tmp_path / "coo", x=GRAPH.x, y=GRAPH.y, edge_index=GRAPH.edge_index, edge_weight=WEIGHTS.astype(np.float64)
    )
    assert weighted_edges(folder) == EXPECTED
    data = open_dataset(folder)
    again = cohort.from_tensors(
        tmp_path / "csc", x=GRAPH.x, y=GRAPH.y, indptr=data.indptr, indices=data.indices, edge_weight=data.edge_weights
    )
    assert weighted_edges(again) == EXPECTED
    graph = data.to_pyg()
    assert by_bits(zip(*graph.edge_index.flip(0).tolist(), graph.edge_weight.tolist(), strict=True)) == EXPECTED


def test_generated_weights_are_those_of_both_directions(tmp_path, run):
    options = ["--nodes", 200, "--edges", 900, "--seed", 4, "--dim", 2]
    assert run("generate", tmp_path / "both", *options, "--random-edge-weights", "--undirected") == 0
    found = weighted_edges(tmp_path / "both")
    assert len(found) == 1800 and len({weight for *_, weight in found}) > 700
    assert all(0 < weight <= 1 for *_, weight in found)
    counts = collections.Counter(found)
    assert counts == collections.Counter((source, target, weight) for target, source, weight in found)
    assert run("generate", tmp_path / "plain", *options, "--undirected") == 0
    for name in ("indptr", "indices", "features", "labels", "train_ids"):
        np.testing.assert_array_equal(np.load(tmp_path / f"both/{name}.npy"), np.load(tmp_path / f"plain/{name}.npy"))
    assert "edge_weights" not in json.loads((tmp_path / "plain/meta.json").read_text())["files"]


def test_weights_that_do_not_fit_are_refused(tmp_path):
    source, given = edge_list(tmp_path, "npy")

    def refused(weights) -> CohortError:
        np.save(given["edge_weights"], weights)
        return refusal(source, **OF_NODES, **given)

    assert "one weight for each edge" in refused(WEIGHTS[:-1]).expected
    assert refused(np.r_[WEIGHTS, 1]).found == "more"
    assert "numbers" in refused(WEIGHTS.astype("S4")).expected
    assert "shape [any]" in refused(np.ones((len(SRC), 2))).expected
    nan = refused(np.r_[WEIGHTS[:-1], np.nan])
    assert nan.expected == "a finite number" and "edge_weights.npy" in nan.place and nan.found == "NaN"
    assert "nan_to_num" in nan.hint
    np.save(given["edge_weights"], WEIGHTS)
    error = refusal(source, **OF_NODES, weight_column="2")
    assert "an edge list of text or Parquet" in error.expected
    np.savez(tmp_path / "in.npz", src=SRC, dst=DST, x=GRAPH.x, labels=GRAPH.y)
    error = refusal(tmp_path / "in.npz", weight_column="2")
    assert error.place == "--weight-column" and "format npz" in error.found
    text, _ = edge_list(tmp_path, "numbered column")
    error = refusal(text, **OF_NODES, **given, weight_column="2")
    assert (error.expected, error.found) == ("one of the two", "both")
    error = refusal(text, **OF_NODES, edge_weights=text, header="no")
    assert error.found == "3 columns" and "--weight-column" in error.hint
    with pytest.raises(CohortError, match="edge_weight: expected one weight for each edge, found only 3"):
        cohort.from_tensors(tmp_path / "o", x=GRAPH.x, y=GRAPH.y, edge_index=GRAPH.edge_index, edge_weight=np.ones(3))


def test_a_file_of_weights_that_is_damaged_is_found(tmp_path):
    folder = cohort.from_tensors(
        tmp_path / "data", x=GRAPH.x, y=GRAPH.y, edge_index=GRAPH.edge_index, edge_weight=WEIGHTS
    )
    weights = np.load(folder / "edge_weights.npy")
    weights[[5, 9]] = np.inf
    np.save(folder / "edge_weights.npy", weights)
    (problem,) = check(folder)
    assert problem.place.endswith("edge_weights.npy[5]") and problem.found == "Inf (2 such places)"
    np.save(folder / "edge_weights.npy", weights[1:])
    with pytest.raises(CohortError, match=r"edge_weights.npy.*\[400\]"):
        open_dataset(folder)
    (folder / "edge_weights.npy").unlink()
    with pytest.raises(CohortError, match="edge_weights.npy"):
        open_dataset(folder)
