"""cohort.dataset.from_tables: tables of pandas, polars, DuckDB and pyarrow become the same data set; what fails leaves
nothing."""

from __future__ import annotations

import filecmp
import resource
import threading
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import from_tables, import_graph
from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.dataset.tables.ahead import ahead
from cohort_gnn.dataset.tables.arrow_table import ArrowStream

COUNT, PAIRS = 40, 300
USERS = pa.table(
    {
        "user": [f"u{i * 7 % COUNT}" for i in range(COUNT)],
        "age": pa.array(np.arange(COUNT) * 0.5, pa.float32()),
        "visits": pa.array(np.arange(COUNT) % 9, pa.int32()),
        "fraud": pa.array(np.arange(COUNT) % 2, pa.int64()),
        "part": ["train", "val", "test", ""] * 10,
    }
)
PAYMENTS = pa.table(
    {
        "payer": [f"u{i * 3 % COUNT}" for i in range(PAIRS)],
        "payee": [f"u{i * i % COUNT}" for i in range(PAIRS)],
        "amount": pa.array(np.arange(PAIRS) + 1.0, pa.float32()),
        "at": pa.array(np.arange(PAIRS) // 5, pa.int64()),
    }
)
NODE_KEYS = {"id": "user", "features": ["age", "visits"], "label": "fraud", "split": "part"}
EDGE_KEYS = {"source": "payer", "target": "payee", "time": "at", "features": ["amount"]}
PAYS = ("user", "pays", "user")


def stream(table: pa.Table) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=17))


class DeltaTable:
    """As far as deltalake 1.6 has it."""

    def __init__(self, table: pa.Table):
        self._table = table

    def to_pyarrow_dataset(self) -> pads.Dataset:
        return pads.dataset(self._table)


class DataScan:
    """As far as pyiceberg 0.12 has it."""

    def __init__(self, table: pa.Table):
        self._table = table

    def to_arrow_batch_reader(self) -> pa.RecordBatchReader:
        return stream(self._table)


def in_chunks(table: pa.Table) -> pa.Table:
    """As a table of several files may be: with categories of each, and an empty chunk of one column."""
    parts = [table.slice(0, 9), table.slice(9)]
    texts = pa.chunked_array([part.column(0).combine_chunks().dictionary_encode() for part in parts])
    last = pa.chunked_array([part.column(-1).combine_chunks() for part in (parts[0], table.slice(0, 0), parts[1])])
    table = table.set_column(0, table.column_names[0], texts)
    return table.set_column(table.num_columns - 1, table.column_names[-1], last)


def categories(frame: pd.DataFrame) -> pd.DataFrame:
    """With two columns of them, one of intervals, which is not used."""
    return frame.astype({frame.columns[0]: "category"}).assign(span=pd.cut(np.arange(len(frame)), 3))


KINDS = {
    "chunks": lambda table, folder: in_chunks(table),
    "pyarrow": lambda table, folder: table,
    "reader": lambda table, folder: stream(table),
    "dataset": lambda table, folder: pads.dataset(table),
    "pandas": lambda table, folder: table.to_pandas(),
    "polars": lambda table, folder: pl.from_arrow(table),
    "duckdb": lambda table, folder: duckdb.from_arrow(table),
    "delta": lambda table, folder: DeltaTable(table),
    "iceberg": lambda table, folder: DataScan(table),
    "categories": lambda table, folder: categories(table.to_pandas()),
    "categories of polars": lambda table, folder: pl.from_arrow(table).with_columns(pl.first().cast(pl.Categorical)),
}


@pytest.fixture(scope="module")
def from_files(tmp_path_factory) -> Path:
    """The data set that files of the same tables become."""
    folder = tmp_path_factory.mktemp("files")
    pq.write_table(USERS, folder / "users.parquet")
    pq.write_table(PAYMENTS, folder / "payments.parquet")
    lines = [
        "nodes: {user: {file: users.parquet, id: user, features: [age, visits], label: fraud, split: part}}",
        "edges: [{type: [user, pays, user], file: payments.parquet, source: payer, target: payee, features: [amount],"
        " time: at}]",
        "name: payments",
    ]
    (folder / "graph.yaml").write_text("\n".join(lines))
    import_graph(folder, folder / "out")
    return folder / "out"


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_of_any_library_gives_the_data_set_of_the_files(kind, from_files, tmp_path):
    users, payments = (KINDS[kind](table, tmp_path) for table in (USERS, PAYMENTS))
    out = from_tables(
        tmp_path / "out",
        nodes={"user": {"table": users, **NODE_KEYS}},
        edges={PAYS: {"table": payments, **EDGE_KEYS}},
        name="payments",
    )
    names = sorted(path.name for path in from_files.iterdir())
    assert sorted(path.name for path in out.iterdir()) == names
    assert filecmp.cmpfiles(from_files, out, names, shallow=False) == (names, [], [])
    assert [path.name for path in tmp_path.iterdir()] == ["out"], "the tables' files are gone"


ENDS = {"source": "payer", "target": "payee"}  # of edges that have nothing beside: their table is not kept in a file


@pytest.fixture(scope="module")
def ends_from_files(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("ends")
    pq.write_table(USERS, folder / "users.parquet")
    pq.write_table(PAYMENTS, folder / "payments.parquet")
    lines = [
        "nodes: {user: {file: users.parquet, id: user, features: [age]}}",
        "edges:",
        "- {type: [user, asks, user], file: payments.parquet, source: payee, target: payer}",
        "- {type: [user, pays, user], file: payments.parquet, source: payer, target: payee}",
    ]
    (folder / "graph.yaml").write_text("\n".join([*lines, "name: payments"]))
    import_graph(folder, folder / "out")
    return folder / "out"


@pytest.mark.parametrize("kind", KINDS)
def test_edges_without_more_go_from_their_table_into_the_data_set(kind, ends_from_files, tmp_path):
    out = from_tables(
        tmp_path / "out",
        nodes={"user": {"table": KINDS[kind](USERS, tmp_path), "id": "user", "features": ["age"]}},
        edges={
            ("user", "asks", "user"): {
                "table": KINDS[kind](PAYMENTS, tmp_path),
                "source": "payee",
                "target": "payer",
            },
            PAYS: {"table": KINDS[kind](PAYMENTS, tmp_path), **ENDS},
        },
        name="payments",
    )
    names = sorted(path.name for path in ends_from_files.iterdir())
    assert filecmp.cmpfiles(ends_from_files, out, names, shallow=False) == (names, [], [])
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_relations_of_one_connection_do_not_end_each_other(tmp_path):
    """A connection of DuckDB has one open stream: the last one that was opened."""
    with duckdb.connect() as connection:
        pairs = [
            connection.sql(f"SELECT range AS src, (range + {i}) % 9999 AS dst FROM range(9999)") for i in (1, 2, 3)
        ]
        out = from_tables(
            tmp_path / "out",
            nodes={"a": {"table": connection.sql("SELECT range::FLOAT AS x FROM range(9999)"), "features": ["x"]}},
            edges={("a", f"to{i}", "a"): {"table": relation} for i, relation in enumerate(pairs)},
        )
    assert open_dataset(out).num_edges == 3 * 9999


@pytest.mark.parametrize("compression", ["lz4", "zstd", "uncompressed"])
def test_feather_files_are_tables(compression, from_files, tmp_path):
    pyarrow.feather.write_feather(USERS, str(tmp_path / "users.feather"), compression=compression, chunksize=13)
    pl.from_arrow(PAYMENTS).write_ipc(tmp_path / "payments.arrow")
    text = "nodes: {user: {file: users.feather, id: user, features: [age, visits], label: fraud, split: part}}\n"
    text += "edges: [{type: [user, pays, user], file: payments.arrow, source: payer, target: payee, features: [amount],"
    (tmp_path / "graph.yaml").write_text(text + " time: at}]\nname: payments")
    import_graph(tmp_path, tmp_path / "out")
    names = sorted(path.name for path in from_files.iterdir())
    assert filecmp.cmpfiles(from_files, tmp_path / "out", names, shallow=False) == (names, [], [])


def refused(tmp_path: Path, nodes: dict, edges: dict, **options) -> CohortError:
    with pytest.raises(CohortError) as error:
        from_tables(tmp_path / "out", nodes=nodes, edges=edges, **options)
    assert list(tmp_path.iterdir()) == [], "nothing is left"
    return error.value


@pytest.mark.parametrize("keys", [EDGE_KEYS, ENDS])
def test_a_stream_that_fails_half_way_leaves_nothing(keys, tmp_path):
    def batches():
        yield from PAYMENTS.to_batches(max_chunksize=100)[:2]
        raise RuntimeError("the connection was lost")

    reader = pa.RecordBatchReader.from_batches(PAYMENTS.schema, batches())
    nodes = {"user": {"table": USERS, **NODE_KEYS}}
    error = refused(tmp_path, nodes, {PAYS: {"table": reader, **keys}})
    assert error.place == "from_tables: edges.user.pays.user" and "connection was lost" in error.found


def test_a_full_disk_is_named(tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
        error = refused(tmp_path, {"user": {"table": USERS, **NODE_KEYS}}, {PAYS: {"table": PAYMENTS, **EDGE_KEYS}})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert error.place == "from_tables: nodes.user" and error.expected == f"disk space for its rows in {tmp_path}"


@pytest.mark.parametrize("keys", [EDGE_KEYS, ENDS])
def test_what_a_table_lacks_is_counted_to_its_end(keys, tmp_path):
    payers = [None if i in (50, 200, 299) else payer for i, payer in enumerate(PAYMENTS["payer"].to_pylist())]
    table = PAYMENTS.set_column(0, "payer", pa.array(payers))
    error = refused(tmp_path, {"user": {"table": USERS, **NODE_KEYS}}, {PAYS: {"table": stream(table), **keys}})
    assert (error.place, error.found) == ("edges.user.pays.user", "3 nulls in payer")


@pytest.mark.parametrize(
    ("batch", "rows", "place", "found"),
    [
        (
            {"src": [0, 1], "dst": [1, 7]},
            {"table": pa.table({"x": np.ones(5, np.float32)}), "features": ["x"]},
            "destination of edge 1",
            "7",
        ),
        (
            {"src": ["u0", "u1"], "dst": ["u1", "you"]},
            {"table": USERS, "id": "user", "features": ["age"]},
            "dst of edge 1",
            "you",
        ),
    ],
)
def test_what_is_wrong_before_a_stream_fails_is_named_first(batch, rows, place, found, tmp_path):
    first = pa.record_batch(batch)

    def batches():
        yield first
        raise RuntimeError("the connection was lost")

    reader = pa.RecordBatchReader.from_batches(first.schema, batches())
    error = refused(tmp_path, {"a": rows}, {("a", "to", "a"): {"table": reader, "source": "src", "target": "dst"}})
    assert error.place.endswith(place) and error.found == found


def test_a_stream_is_read_once():
    table = ArrowStream("edges", PAYMENTS.schema, iter(PAYMENTS.to_batches()))
    assert sum(len(array) for (array,), _ in table.pieces([0], "texts", 1000)) == table.count() == PAIRS
    with pytest.raises(CohortError, match="rows that are read once"):
        next(table.pieces([0], "texts", 1000))


def test_what_is_wrong_is_named(tmp_path):
    nodes, edges = {"user": {"table": USERS, **NODE_KEYS}}, {PAYS: {"table": PAYMENTS, **EDGE_KEYS}}
    error = refused(tmp_path, nodes, {PAYS: {"table": pl.from_arrow(PAYMENTS).lazy(), **EDGE_KEYS}})
    assert (
        error.found == f"LazyFrame of polars {pl.__version__}"
        and "polars 1.3" in error.hint
        and "collect()" in error.hint
    )
    error = refused(tmp_path, {"user": {"table": USERS, **NODE_KEYS, "features": ["age", "part"]}}, edges)
    assert error.place == "nodes.user: column part" and error.expected == "numbers"
    error = refused(tmp_path, nodes, {PAYS: {"table": PAYMENTS, **EDGE_KEYS, "source": "from"}})
    assert error.place == "edges.user.pays.user" and error.expected == "a column from"
    error = refused(tmp_path, {"user": {"table": USERS, "ids": "user"}}, edges)
    assert error.place.startswith("from_tables") and "graph.yaml" in error.hint
    error = refused(tmp_path, {"user": {"file": "users.parquet"}}, edges)
    assert "import_graph" in error.hint
    for table in (DeltaTable(USERS), DataScan(USERS)):
        error = refused(tmp_path, {"user": {"table": table, "features": ["age"]}}, edges)
        assert error.place == "from_tables: nodes.user" and "no order" in error.expected and "id" in error.hint
    reader = stream(PAYMENTS)
    for tables in ({"table": reader}, {"table": USERS}), ({"table": USERS}, {"table": reader}):
        twice = {PAYS: {**EDGE_KEYS, **tables[1]}, ("user", "asks", "user"): {**EDGE_KEYS, "table": reader}}
        error = refused(tmp_path, {"user": {**NODE_KEYS, **tables[0]}}, twice)
        assert "read once" in error.expected and error.place == "from_tables: edges.user.asks.user"
    for odd in (["a", 1], [1j, 2]):
        frame = pd.DataFrame({"odd": pd.Series(odd), "age": [1.0, 2.0]})
        error = refused(tmp_path, {"user": {"table": frame, "features": ["age"]}}, edges)
        assert "column odd" in error.found and error.place == "from_tables: nodes.user" and "astype" in error.hint
    frame = pd.DataFrame({"odd": [2**70, 1], "age": [1.0, 2.0]})  # beyond what Arrow counts
    error = refused(tmp_path, {"user": {"table": frame, "features": ["age"]}}, edges)
    assert "too large" in error.found and error.place == "from_tables: nodes.user" and "astype" in error.hint
    keys = NODE_KEYS | {"id": ["user", "visits"], "features": ["age"]}
    error = refused(tmp_path, {"user": {"table": USERS, **keys}}, edges)
    assert "(nodes.user: columns user, visits)" in error.expected
    index = USERS.select(["age"]).to_pandas().iloc[::-1]
    error = refused(tmp_path, {"user": {"table": index, "features": ["age"]}}, edges)
    assert error.place == "nodes.user" and "index" in str(error)


def test_one_table_of_nodes_and_rows_without_ids(tmp_path):
    rows = pd.DataFrame({"x": np.arange(5.0), "y": np.arange(5) % 2})
    pairs = pd.DataFrame({"src": [0, 1, 2, 3], "dst": [1, 2, 3, 4]})
    out = from_tables(
        tmp_path / "out",
        nodes={"a": {"table": rows, "features": ["x"], "label": "y"}},
        edges={("a", "to", "a"): {"table": pairs}},
        reverse=True,
    )
    data = open_dataset(out)
    assert data.num_edges == 8
    np.testing.assert_array_equal(np.asarray(data.x)[:, 0], rows.x.to_numpy(np.float32))


def test_a_reader_that_is_dropped_waits_for_no_read():
    """The garbage collector closes those of imports that failed, in any thread, whatever lock that has."""
    go_on = threading.Event()
    reads = ahead([lambda: 1, go_on.wait], 1)
    assert next(reads) == 1, "the other read is under way"
    closes = threading.Thread(target=reads.close, daemon=True)
    closes.start()
    closes.join(20)
    is_closed = not closes.is_alive()
    go_on.set()
    assert is_closed


@pytest.mark.parametrize("nodes", [USERS, [USERS], {"user": USERS}], ids=["table", "list", "without keys"])
def test_tables_without_their_types_are_refused(tmp_path, nodes):
    error = refused(tmp_path, nodes, {PAYS: {"table": PAYMENTS, **EDGE_KEYS}})
    assert (error.place, error.expected) == (
        "from_tables: nodes",
        'a dict of dicts, such as {"user": {"table": users}}',
    )
