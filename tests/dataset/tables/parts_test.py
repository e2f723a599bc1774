"""Tables in several files, as pandas, polars, DuckDB and pyarrow write them: one table, or refused."""

from __future__ import annotations

import os
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
from import_helpers import edge_pairs, imported, refusal

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset.columns import Column
from cohort_gnn.dataset.layouts import tables
from cohort_gnn.dataset.layouts.described import times_of
from cohort_gnn.dataset.layouts.node_ids import NodeIds
from cohort_gnn.dataset.tables.encoding import DeclaredColumns
from cohort_gnn.dataset.tables.parts import Parts, part_files
from cohort_gnn.dataset.tables.text_options import TextOptions

NUM_NODES = 60
ALONE = {"features": "ones", "nodes": NUM_NODES}  # of edges
EDGES = pd.DataFrame(
    {"src": np.arange(240) % NUM_NODES, "dst": np.arange(240) * 7 % NUM_NODES, "day": np.arange(240) % 3}
)
ROWS = pd.DataFrame({"a": np.arange(NUM_NODES) * 0.5, "b": np.arange(NUM_NODES) * -1.0, "id": np.arange(NUM_NODES)})


def split(frame: pd.DataFrame, folder: Path, cuts: list[int], name: str = "part-{:05}.parquet") -> Path:
    """Writes the rows between the cuts as files of a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, (begin, end) in enumerate(zip([0, *cuts], [*cuts, len(frame)], strict=True)):
        frame.iloc[begin:end].reset_index(drop=True).to_parquet(folder / name.format(number))
    return folder


def expect_edges(data) -> None:
    assert sorted(edge_pairs(data)) == sorted(zip(EDGES.src, EDGES.dst, strict=True))


def write_by_pyarrow(folder: Path) -> None:
    schema = pa.schema([("day", pa.int64())])
    table = pa.Table.from_pandas(EDGES, preserve_index=False)
    pads.write_dataset(table, folder, format="parquet", partitioning=pads.partitioning(schema, flavor="hive"))


def write_by_duckdb(folder: Path) -> None:
    edges = EDGES  # noqa: F841 (DuckDB reads the variable)
    duckdb.connect().execute(f"COPY (SELECT * FROM edges) TO '{folder}' (FORMAT parquet, PARTITION_BY (day))")


def write_by_pandas(folder: Path) -> None:
    EDGES.to_parquet(folder, partition_cols=["day"])


def write_by_polars(folder: Path) -> None:
    pl.from_pandas(EDGES).write_parquet(folder, partition_by="day")


@pytest.mark.parametrize("write", [write_by_pyarrow, write_by_duckdb, write_by_pandas, write_by_polars])
def test_partitions_by_folders_are_columns(write, tmp_path):
    write(tmp_path / "edges")
    data = imported(tmp_path / "edges", **ALONE, time_column="day")
    expect_edges(data)
    times = np.asarray(data.edge_times)
    assert sorted(times.tolist()) == sorted(EDGES.day.tolist())
    order = {(source, target): set() for source, target in zip(EDGES.src, EDGES.dst, strict=True)}
    for source, target, day in EDGES.itertuples(index=False):
        order[source, target].add(day)
    for (source, target), day in zip(edge_pairs(data), times, strict=True):
        assert day in order[source, target]


def test_names_that_spark_adds_are_left_out(tmp_path):
    folder = split(EDGES, tmp_path / "edges.parquet", [100, 100, 180])
    for name in ("_SUCCESS", "._SUCCESS.crc", ".part-00000.parquet.crc", "_metadata"):
        (folder / name).write_bytes(b"")
    (folder / "_temporary").mkdir()
    split(EDGES, folder / "_temporary", [10])
    expect_edges(imported(folder, **ALONE))


def test_a_pattern_names_parts(tmp_path):
    split(EDGES, tmp_path / "all", [50, 100])
    (tmp_path / "all" / "notes.txt").write_text("nothing")
    error = refusal(tmp_path / "all", features="ones", format="parquet")
    assert "a Parquet file" in error.expected or "notes.txt" in str(error)
    expect_edges(imported(tmp_path / "all" / "part-*.parquet", **ALONE))
    error = refusal(tmp_path / "all" / "other-*.parquet")
    assert error.found == "no such file or folder"


def test_columns_may_have_another_order_and_width(tmp_path):
    (tmp_path / "edges").mkdir()
    EDGES[["src", "dst"]].iloc[:90].astype("int32").to_parquet(tmp_path / "edges/a.parquet")
    EDGES[["dst", "src"]].iloc[90:].reset_index(drop=True).to_parquet(tmp_path / "edges/b.parquet")
    expect_edges(imported(tmp_path / "edges", **ALONE))


def test_parts_of_text(tmp_path):
    (tmp_path / "edges").mkdir()
    EDGES.iloc[:90].to_csv(tmp_path / "edges/1.csv", index=False)
    EDGES.iloc[90:][["dst", "day", "src"]].to_csv(tmp_path / "edges/2.csv.gz", index=False)
    expect_edges(imported(tmp_path / "edges", **ALONE))
    EDGES.iloc[90:].to_csv(tmp_path / "edges/2.csv.gz", index=False, header=False)
    error = refusal(tmp_path / "edges", features="ones")
    assert error.place.startswith(str(tmp_path / "edges/2.csv.gz"))


def test_other_columns_are_refused(tmp_path):
    folder = split(EDGES, tmp_path / "edges", [100])
    EDGES.rename(columns={"day": "week"}).to_parquet(folder / "part-00002.parquet", index=False)
    error = refusal(folder, features="ones")
    assert error.place == str(folder / "part-00002.parquet") and error.found == "no day; also week"


def test_folders_of_parts_agree(tmp_path):
    split(EDGES, tmp_path / "edges/day=1", [100])
    split(EDGES, tmp_path / "edges/week=1", [100])
    error = refusal(tmp_path / "edges", features="ones")
    assert error.expected == "folders day=..." and error.found == "week=..."


@pytest.mark.parametrize(("one", "other"), [("1", "01"), ("+7", "7"), ("0", "-0")])
def test_folders_that_are_one_integer_are_refused(tmp_path, one, other):
    split(EDGES[["src", "dst"]], tmp_path / f"edges/day={one}", [100])
    split(EDGES[["src", "dst"]], tmp_path / f"edges/day={other}", [100])
    error = refusal(tmp_path / "edges", time_column="day", **ALONE)
    assert error.expected == "a folder for each value of day" and f"day={one}" in error.found and error.hint
    split(EDGES[["src", "dst"]], tmp_path / "edges/day=unknown", [100])  # they are texts, then
    table = tables.open_table(tmp_path / "edges")
    blocks = [texts.to_pylist() for (texts,), _ in table.texts([table.titles.index("day")], 1 << 20)]
    assert set(sum(blocks, [])) == {one, other, "unknown"}


def test_rows_of_nodes_keep_their_order(tmp_path):
    edges = split(EDGES[["src", "dst"]], tmp_path / "edges", [100])
    rows = split(ROWS[["a", "b"]], tmp_path / "rows", [7, 7, 31])
    data = imported(edges, features=rows)
    np.testing.assert_array_equal(np.asarray(data.x), ROWS[["a", "b"]].to_numpy(np.float32))


def test_an_order_that_names_leave_open_is_refused(tmp_path):
    edges = split(EDGES[["src", "dst"]], tmp_path / "edges", [100])
    rows = split(ROWS[["a", "b"]], tmp_path / "rows", list(range(5, 60, 5)), "data_{}.parquet")
    assert [path.name for path in part_files(rows)][:3] == ["data_0.parquet", "data_1.parquet", "data_2.parquet"]
    error = refusal(edges, features=rows)
    assert error.place == str(rows) and "part-02" in error.hint
    for day in (9, 10):
        split(ROWS[["a", "b"]], tmp_path / "days" / f"day={day}", [])
    error = refusal(edges, features=tmp_path / "days")
    assert error.found == "day=9/part-00000.parquet, day=10/part-00000.parquet"
    by_id = split(ROWS.iloc[::-1], tmp_path / "by-id", list(range(5, 60, 5)), "data_{}.parquet")
    data = imported(edges, features=by_id, id_column={"features": "id"})
    ids = np.load(data.path / "id_of_node.npy")
    np.testing.assert_array_equal(np.asarray(data.x), ROWS[["a", "b"]].to_numpy(np.float32)[ids])
    numbers = split(EDGES[["src", "dst"]], tmp_path / "numbers", list(range(20, 240, 20)), "data_{}.parquet")
    expect_edges(imported(numbers, **ALONE))
    np.save(tmp_path / "w.npy", np.ones(len(EDGES), np.float32))
    error = refusal(numbers, features="ones", edge_weights=tmp_path / "w.npy")
    assert error.place == str(numbers)


LOGS = {
    "Delta Lake": "_delta_log/00000000000000000000.json",
    "Iceberg": "metadata/00000-8a41c993-82d3-4e17-914e-d785f9b51ed9.metadata.json",
    "Hudi": ".hoodie/hoodie.properties",
    "DuckLake": "data/day=1/ducklake-01a22dbf-3344-7b88-bdda-c9607b81aad0-delete.parquet",
}


@pytest.mark.parametrize("pattern", ["", "data/day=*/*.parquet", "data/day=1"])
@pytest.mark.parametrize("format", LOGS)
def test_folders_with_files_of_rows_that_were_removed_are_refused(tmp_path, format, pattern):
    split(EDGES[["src", "dst"]], tmp_path / "t/data/day=1", [100])
    log = tmp_path / "t" / LOGS[format]
    log.parent.mkdir(exist_ok=True)
    log.write_text("{}")
    error = refusal(tmp_path / "t" / pattern, tmp_path / "out", **ALONE)
    assert error.place == str(tmp_path / "t" / pattern) and format in error.found and "from_tables" in error.hint


def test_metadata_of_something_else_is_no_table_of_iceberg(tmp_path):
    edges = split(EDGES[["src", "dst"]], tmp_path / "data", [100])
    (tmp_path / "metadata").mkdir()
    (tmp_path / "metadata/study.metadata.json").write_text("{}")
    expect_edges(imported(edges, **ALONE))


def test_values_of_folders(tmp_path):
    for name, rows in (("kind=a%2Fb", ROWS.iloc[:20]), ("kind=__HIVE_DEFAULT_PARTITION__", ROWS.iloc[20:])):
        split(rows[["a"]], tmp_path / "rows" / name, [])
    table = tables.open_table(tmp_path / "rows")
    assert isinstance(table, Parts) and table.titles == ["a", "kind"]
    texts = [text for (column,), _ in table.texts([1], 1 << 20, nulls=True) for text in column.to_pylist()]
    assert sorted(texts, key=str) == [None] * 40 + ["a/b"] * 20
    with pytest.raises(CohortError, match="40 nulls in kind"):
        list(table.texts([1], 1 << 20))
    assert table.count() == NUM_NODES


@pytest.mark.parametrize("other", [pa.array([[7.0] * 3]), pa.array([7.0])])
def test_lists_of_other_lengths_are_refused_in_any_part(other, tmp_path):
    """Rows of a data set have one length: a longer one moved all that came behind it."""
    for name, lists in (("part-0", pa.array([[1.0, 2.0]] * 3)), ("part-1", other)):
        pq.write_table(pa.table({"x": lists}), tmp_path / f"{name}.parquet")
    table = tables.open_table(tmp_path)
    with pytest.raises(CohortError, match="lists of one length"):
        table.read([0], np.float32)
    with pytest.raises(CohortError, match="lists of one length"):
        DeclaredColumns.from_entries(table, [Column(column="x", standardize=True)], "x", fit_all=True).fit(None)


@pytest.mark.parametrize(
    ("one", "other", "found"),
    [
        (pa.int64(), pa.timestamp("us"), "integers and timestamps without a zone"),
        (pa.date32(), pa.timestamp("s", "UTC"), "instants and timestamps without a zone"),
    ],
)
def test_times_of_a_split_are_of_one_kind_in_all_parts(one, other, found, tmp_path):
    """Of seconds as integers and of timestamps, which became microseconds, each part was a split of its own."""
    for number, type_ in enumerate((one, one, other)):
        pq.write_table(pa.table({"t": pa.array([3, 1], type_)}), tmp_path / f"part-{number}.parquet")
    table = tables.open_table(tmp_path)
    with pytest.raises(CohortError, match=f"part-2.*column t: expected times of one kind, found {found}"):
        times_of(table, 0)


@pytest.mark.parametrize(
    ("other", "ids"),
    [
        (["9"], [7, 8, 9]),
        (["x"], ["7", "8", "x"]),
        (pa.array([9], pa.uint64()), [7, 8, 9]),
        (pa.array([2**63 + 9], pa.uint64()), ["7", "8", f"{2**63 + 9}"]),
    ],
)
def test_ids_of_parts_are_integers_if_all_are(other, ids, tmp_path):
    for name, column in (("part-0", [7, 8]), ("part-1", other)):
        pq.write_table(pa.table({"key": column}), tmp_path / f"{name}.parquet")
    found = NodeIds("user", tables.open_table(tmp_path), [0])
    assert [value for block in found.blocks() for value in block.to_pylist()] == ids
    assert found.read(tables.open_table(tmp_path), [0]).tolist() == [0, 1, 2]


def test_ids_of_splits_are_integers_or_a_mask(tmp_path):
    for name, text in (("part-0", "id\n3\n1\n"), ("part-1", "id\n2\n")):
        (tmp_path / "texts").mkdir(exist_ok=True)
        (tmp_path / f"texts/{name}.csv").write_text(text)
    assert tables.read_ids(tmp_path / "texts", TextOptions(header="yes")).tolist() == [3, 1, 2]
    good = {"mask": pa.array([True, False]), "ids": pa.array([3, 1], pa.int8()), "none": pa.array([], pa.int64())}
    bad = {"floats": ([1.0], "column i: expected integers, found double"), "nulls": ([1, None], "1 null in i")}
    for name, column in (good | {name: column for name, (column, _) in bad.items()}).items():
        pq.write_table(pa.table({"i": column}), tmp_path / f"{name}.parquet")
    for name, column in good.items():
        assert tables.read_ids(tmp_path / f"{name}.parquet").tolist() == column.to_pylist()
    for name, (_, message) in bad.items():
        with pytest.raises(CohortError, match=f"{name}.parquet.*{message}"):
            tables.read_ids(tmp_path / f"{name}.parquet")


def test_folders_that_a_pattern_names_are_no_columns(tmp_path):
    split(EDGES[["src", "dst"]], tmp_path / "run=3/edges/day=1", [100])
    assert tables.open_table(tmp_path / "run=3/edges/day=1/*.parquet").titles == ["src", "dst"]
    assert tables.open_table(tmp_path / "run=3/edges/*/*.parquet").titles == ["src", "dst", "day"]
    assert tables.open_table(tmp_path / "run=3/edges").titles == ["src", "dst", "day"]


def test_a_column_of_the_files_is_taken_where_a_folder_has_its_name(tmp_path):
    split(EDGES, tmp_path / "edges/day=9", [])
    data = imported(tmp_path / "edges", **ALONE, time_column="day")
    assert sorted(np.asarray(data.edge_times).tolist()) == sorted(EDGES.day.tolist())


def test_an_index_of_pandas_over_all_parts_is_none(tmp_path):
    (tmp_path / "rows").mkdir()
    for number, (begin, end) in enumerate([(0, 20), (20, 60)]):
        ROWS[["a", "b"]].iloc[begin:end].to_parquet(tmp_path / f"rows/part-{number}.parquet")
    assert tables.open_table(tmp_path / "rows").row_ids is None
    ROWS[["a", "b"]].iloc[5:20].to_parquet(tmp_path / "rows/part-0.parquet")
    assert tables.open_table(tmp_path / "rows").row_ids == range(5, 20)


def test_many_parts_need_few_open_files(tmp_path):
    folder = split(EDGES, tmp_path / "edges", list(range(1, 240)))
    table = tables.open_table(folder)
    before = most = len(os.listdir("/proc/self/fd"))  # those of other tests, too
    rows = 0
    for block, _ in table.blocks([0, 1], 1 << 16, np.int64):
        rows += len(block)
        most = max(most, len(os.listdir("/proc/self/fd")))
    assert rows == 240 and most - before < 50


def test_a_damaged_part_is_named(tmp_path):
    folder = split(EDGES, tmp_path / "edges", [100])
    pq.write_table(pa.table({"src": ["a"], "dst": [1], "day": [2]}), folder / "part-00002.parquet")
    error = refusal(folder, features="ones")
    assert error.place == f"{folder / 'part-00002.parquet'}: column src"
