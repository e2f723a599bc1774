"""Times of edges through importers, sorting, renumbering and splitting; checked; refused where they do not fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from import_helpers import imported, refusal
from layout_writers import sample
from processes import cohort, ran
from torch_geometric.data import Data

from cohort_gnn import CohortError
from cohort_gnn.dataset import from_pyg, from_tensors, split_links
from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.dataset.check import check
from cohort_gnn.dataset.importing.renumber import renumber

GRAPH = sample()
SRC, DST = GRAPH.edge_index
TIMES = np.random.default_rng(9).integers(-(2**40), 2**40, len(SRC))
TIMES[::3] = 7


def timed_edges(data) -> list[tuple[int, int, int]]:
    """(destination, time, source), in the order of the files, of a data set or its folder."""
    data = open_dataset(data) if isinstance(data, Path) else data
    target = np.repeat(np.arange(data.num_nodes), np.diff(data.indptr))
    assert data.edge_times.dtype == np.int64 and check(data.path) == []
    return list(zip(target.tolist(), data.edge_times.tolist(), data.indices.tolist(), strict=True))


EXPECTED = sorted(zip(DST.tolist(), TIMES.tolist(), SRC.tolist(), strict=True))


@pytest.mark.parametrize("kind", ["npy", "csv", "parquet", "text and a file of times"])
def test_edge_lists_have_times(tmp_path, kind):
    if kind == "npy":
        np.save(tmp_path / "edges.npy", GRAPH.edge_index)
        np.save(tmp_path / "times.npy", TIMES[:, None])
        source, how = tmp_path / "edges.npy", {"edge_times": tmp_path / "times.npy"}
    elif kind == "parquet":
        source, how = tmp_path / "edges.parquet", {"time_column": "when"}
        pq.write_table(pa.table({"src": SRC, "when": TIMES, "dst": DST}), source)
    elif kind == "csv":
        source, how = tmp_path / "edges.csv", {"time_column": "when"}
        rows = "\n".join(",".join(map(str, row)) for row in zip(SRC, TIMES, DST, strict=True))
        source.write_text(f"src,when,dst\n{rows}\n")
    else:
        source, how = tmp_path / "edges.txt", {"edge_times": tmp_path / "times.csv"}
        source.write_text("src dst\n" + "\n".join(f"{s} {d}" for s, d in zip(SRC, DST, strict=True)))
        (tmp_path / "times.csv").write_text("t\n" + "\n".join(map(str, TIMES)))
    notes: list[str] = []
    data = imported(source, features="ones", nodes=len(GRAPH.x), **how, note=notes.append)
    assert timed_edges(data) == EXPECTED
    assert ("times when" in " ".join(notes)) == (kind in ("csv", "parquet"))


@pytest.mark.parametrize("of_nodes", [False, True])
def test_a_saved_data_has_times(tmp_path, of_nodes):
    x = torch.from_numpy(GRAPH.x)
    data = Data(x=x, edge_index=torch.from_numpy(GRAPH.edge_index))
    if of_nodes:
        data.time = torch.arange(len(x)) % 4
    else:
        data.edge_time = torch.from_numpy(TIMES)
    torch.save(data.to_dict(), tmp_path / "data.pt")
    written = from_pyg(data, tmp_path / "written")
    expected = sorted((d, s % 4, s) for s, d in GRAPH.edge_index.T.tolist()) if of_nodes else EXPECTED
    assert timed_edges(imported(tmp_path / "data.pt")) == timed_edges(written) == expected


def test_edges_both_ways_share_their_time(tmp_path):
    np.save(tmp_path / "edges.npy", np.array([[0, 0, 0, 1], [1, 1, 1, 1]]))
    np.save(tmp_path / "times.npy", np.array([3, 3, -3, 9]))
    options = {"edge_times": tmp_path / "times.npy", "undirected": True, "self_loops": "remove"}
    assert timed_edges(imported(tmp_path / "edges.npy", features="ones", **options)) == [
        (0, -3, 1),
        (0, 3, 1),
        (1, -3, 0),
        (1, 3, 0),
    ]


@pytest.fixture
def timed(tmp_path) -> Path:
    return from_tensors(tmp_path / "timed", x=GRAPH.x, edge_index=GRAPH.edge_index, edge_time=TIMES)


def test_renumbered_nodes_and_held_out_links_keep_times(timed, tmp_path):
    (tmp_path / "renumbered").mkdir()
    old_of_new = renumber(timed, tmp_path / "renumbered")
    (tmp_path / "renumbered" / "features.npy").symlink_to(timed / "features.npy")
    renumbered = timed_edges(tmp_path / "renumbered")
    assert sorted((int(old_of_new[d]), t, int(old_of_new[s])) for d, t, s in renumbered) == EXPECTED
    split_links(timed, tmp_path / "split", shares=(0.1, 0.1))
    assert set(timed_edges(tmp_path / "split")) < set(EXPECTED)


def test_info_and_check_know_times(timed):
    found = cohort("dataset", "info", timed)
    assert f"edge times        {TIMES.min():,} to {TIMES.max():,}" in found.stdout
    times = np.load(timed / "edge_times.npy")
    indptr = np.load(timed / "indptr.npy")
    node = int(np.flatnonzero(np.diff(indptr) > 1)[0])
    times[indptr[node] + 1] = times[indptr[node]] - 1
    np.save(timed / "edge_times.npy", times)
    (problem,) = check(timed)
    assert problem.place.endswith(f"edge_times.npy[{indptr[node] + 1}]")
    assert (problem.expected, problem.found) == (f"at least {times[indptr[node]]}, the time before in the list",
                                                 str(times[indptr[node] + 1]))  # fmt: skip
    np.save(timed / "edge_times.npy", times[1:])
    with pytest.raises(CohortError, match=r"edge_times.npy: expected shape"):
        open_dataset(timed)


@pytest.mark.usefixtures("shm")
def test_a_run_says_that_it_uses_no_times(tmp_path):
    y = np.arange(len(GRAPH.x)) % 2
    from_tensors(tmp_path / "timed", x=GRAPH.x, y=y, edge_index=GRAPH.edge_index, edge_time=TIMES)
    from_tensors(tmp_path / "plain", x=GRAPH.x, y=y, edge_index=GRAPH.edge_index)
    for name, is_said in (("timed", True), ("plain", False)):
        options = ["--device", "cpu", "--epochs", 1, "--fanout", "2", "--out", tmp_path / f"run-{name}"]
        found = ran("train", tmp_path / name, *options)
        assert ("edge times are not used" in found.stdout + found.stderr) == is_said


@pytest.mark.parametrize(
    ("times", "said"),
    [
        (TIMES[1:], "edge_time: expected one time for each edge"),
        (np.append(TIMES, 1), "edge_time: expected .* times, one per edge, found more"),
        (TIMES / 2, "edge_time: expected integers that int64 holds, found dtype float64"),
        (TIMES.astype(np.uint64), "edge_time: expected integers that int64 holds, found dtype uint64"),
        (np.stack([TIMES, TIMES]), "edge_time: expected shape"),
    ],
)
def test_times_that_do_not_fit_are_refused(tmp_path, times, said):
    with pytest.raises(CohortError, match=said):
        from_tensors(tmp_path / "g", x=GRAPH.x, edge_index=GRAPH.edge_index, edge_time=times)
    assert not (tmp_path / "g").exists()


def test_what_times_do_not_go_with_is_refused(tmp_path):
    with pytest.raises(CohortError, match="edge_time: expected weights or times of edges, found both"):
        from_tensors(
            tmp_path / "g", x=GRAPH.x, edge_index=GRAPH.edge_index, edge_time=TIMES, edge_weight=TIMES.astype(float)
        )
    np.save(tmp_path / "edges.npy", GRAPH.edge_index)
    np.save(tmp_path / "times.npy", TIMES)
    times = {"edge_times": tmp_path / "times.npy"}
    error = refusal(tmp_path / "edges.npy", features="ones", **times, self_loops="add")
    assert error.expected == "self loops kept or removed, for edges with times"
    error = refusal(tmp_path / "edges.npy", features="ones", time_column="t")
    assert error.place == "--time-column" and "--edge-times FILE" in error.hint
