"""Numbers that all become 0 as float32 are refused, whatever has them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from import_helpers import imported, refusal
from pyarrow import csv

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import from_tables
from cohort_gnn.dataset import open as open_dataset

RING = np.array([[0, 1, 2], [1, 2, 0]])
ARRAYS = ["edge_features", "edge_weights", "features", "labels"]


def sources(folder: Path, kind: str, of: str, last: float) -> tuple[Path, dict]:
    """Edges with numbers of which the last one is this, and the options that say where they are."""
    columns = {"a": [1.0, 2.0, 2.0]} if of in ("edge_features", "features") else {}
    if of == "weight_column":
        columns = {"src": RING[0], "dst": RING[1]}
    table, path, edges = pa.table(columns | {"w": [1e-50, 0.0, last]}), folder / f"t.{kind}", folder / "e.npy"
    if kind == "npy":
        np.save(path, np.column_stack([column.to_numpy() for column in table.columns]))
    else:
        csv.write_csv(table, path) if kind == "csv" else pq.write_table(table, path)
    np.save(edges, RING)
    options = {"features": "ones", "task": "regression" if of == "labels" else "classification"}
    if of == "weight_column":
        return path, options | {of: "w"}
    return edges, options | {of: path}


@pytest.mark.parametrize(
    ("kind", "of"),
    [
        *((kind, of) for kind in ("csv", "parquet") for of in (*ARRAYS, "weight_column")),
        *(("npy", of) for of in ARRAYS),
    ],
)
def test_numbers_that_all_become_0_as_float32_are_refused(tmp_path, kind, of):
    demand_refusal(tmp_path, kind, of)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_weights_in_the_table_of_edges_do_not_become_0(tmp_path, kind):
    demand_refusal(tmp_path, kind, "weight_column")


def demand_refusal(tmp_path: Path, kind: str, of: str) -> None:
    """That such numbers are refused where all become 0, and read beside others."""
    source, options = sources(tmp_path, kind, of, 2e-50)
    error = refusal(source, **options)
    assert "float32 holds" in error.expected and "1e-50" in error.found and "one number" in error.hint
    source, options = sources(tmp_path, kind, of, 2.0)
    imported(source, **options)


def test_values_of_a_matrix_do_not_become_0(tmp_path):
    matrix = tmp_path / "m.mtx"
    matrix.write_text("%%MatrixMarket matrix coordinate real general\n3 3 2\n1 2 1e-50\n2 3 2e-50\n")
    error = refusal(matrix, features="ones")
    assert error.place == f"{matrix}: column 2" and error.found.startswith("1e-50")


def test_declared_columns_do_not_become_0(tmp_path):
    rows = pa.table({"x": [1e-50, 3e-50, 0.0]})
    edges = {("n", "e", "n"): {"table": pa.table({"src": [0, 1], "dst": [1, 2]})}}
    nodes = {"n": {"table": rows, "features": [{"column": "x", "nulls": "zero"}]}}
    with pytest.raises(CohortError, match="column x: expected numbers that float32 holds, found 1e-50"):
        from_tables(tmp_path / "out", nodes=nodes, edges=edges)
    nodes["n"]["features"] = [{"column": "x", "standardize": True}]
    x = open_dataset(from_tables(tmp_path / "out", nodes=nodes, edges=edges)).x
    assert x[:, 0] == pytest.approx([-0.267261, 1.336306, -1.069045], abs=1e-5)


def test_arrays_in_memory_do_not_become_0(tmp_path):
    rows = np.array([[1.0, 1e-50], [2.0, 0.0], [3.0, 0.0]])
    edges = {("n", "e", "n"): {"table": pa.table({"src": [0, 1], "dst": [1, 2]})}}
    table = pa.table({"v": list(rows)})
    x = open_dataset(from_tables(tmp_path / "out", nodes={"n": {"table": table, "features": ["v"]}}, edges=edges)).x
    assert x.tolist() == [[1, 0], [2, 0], [3, 0]], "a few beside others may"
    np.save(tmp_path / "x.npy", rows)
    np.save(tmp_path / "e.npy", RING)
    error = refusal(tmp_path / "e.npy", features=tmp_path / "x.npy")
    assert error.place.endswith("x.npy, column 1") and error.found.startswith("1e-50")
