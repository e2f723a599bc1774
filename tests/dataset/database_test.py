"""Tables with primary and foreign keys become a graph: rows are nodes, keys are relations both ways."""

from __future__ import annotations

import itertools
from pathlib import Path

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from import_helpers import refusal

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import from_tables, import_graph, original_ids
from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.dataset.columns import read_columns
from cohort_gnn.dataset.tasks import open_task
from cohort_gnn.spec.graph import NO_TIME

RNG = np.random.default_rng(4)
DAY = np.datetime64("2024-01-01")


def days(count: int, until: int = 100) -> np.ndarray:
    return (DAY + RNG.integers(0, until, count)).astype("datetime64[us]")


def with_nulls(values, every: int) -> list:
    return [None if i % every == 0 else value for i, value in enumerate(values)]


# A store has no time; a customer a text as id and a customer who brought it; a line two columns as id; a note no id.
STORES = pd.DataFrame({"store": np.arange(5) * 10 + 3, "size": [1.0, 2, 3, 4, 5]})
CUSTOMERS = pd.DataFrame(
    {
        "name": [f"c{i * 7 % 40}" for i in range(40)],
        "brought by": with_nulls([f"c{i * 3 % 40}" for i in range(40)], 4),
        "age": with_nulls(RNG.integers(18, 80, 40).tolist(), 9),
        "city": RNG.choice(["Ulm", "Bonn", "Kiel"], 40),
        "since": days(40),
    }
)
LINES = pd.DataFrame(
    {
        "order": np.repeat(np.arange(30), 4),
        "number": np.tile(["a", "b", "c", "d"], 30),
        "customer": [f"c{i}" for i in RNG.integers(0, 40, 120)],
        "store": with_nulls(RNG.choice(STORES["store"], 120).tolist(), 11),  # floats with NaN, as pandas writes them
        "price": RNG.random(120).astype(np.float32),
        "at": days(120),
    }
)
NOTES = pd.DataFrame(
    {
        "order": [*RNG.integers(0, 30, 50), 99],
        "line": [*RNG.choice(["a", "b", "c", "d"], 50), "z"],  # the last one dangles
        "stars": RNG.integers(1, 6, 51),
        "at": days(51),
    }
)
TABLES = {"store": STORES, "customer": CUSTOMERS, "line": LINES, "note": NOTES}
TIME = {"time_unit": "days", "time_zone": "UTC"}
DESCRIPTION = {
    "nodes": {
        "store": {"id": "store", "features": ["size"]},
        "customer": {
            "id": "name",
            "keys": [{"column": "brought by", "to": "customer"}],
            "features": [
                {"column": "age", "nulls": "mean", "standardize": True},
                {"column": "city", "kind": "category"},
            ],
            "time": "since",
            **TIME,
        },
        "line": {
            "id": ["order", "number"],
            "keys": [{"column": "customer", "to": "customer"}, {"column": "store", "to": "store", "name": "sold_in"}],
            "features": ["price"],
            "time": "at",
            **TIME,
        },
        "note": {
            "keys": [{"column": ["order", "line"], "to": "line", "unknown_ids": "skip"}],
            "id": "none",
            "features": ["stars"],
            "time": "at",
            **TIME,
        },
    },
}


def write_database(folder: Path, description: dict = DESCRIPTION, kind: str = "parquet") -> Path:
    folder.mkdir(exist_ok=True)
    for name, frame in TABLES.items():
        table = pa.Table.from_pandas(frame, preserve_index=False)
        write = pq.write_table if kind == "parquet" else pyarrow.csv.write_csv
        if kind == "csv":
            table = pa.table(
                {n: c.cast("int64") if n == "store" else c for n, c in zip(table.column_names, table, strict=True)}
            )
        write(table, folder / f"{name}.{kind}")
    nodes = {name: {"file": f"{name}.{kind}"} | keys for name, keys in description["nodes"].items()}
    (folder / "graph.yaml").write_bytes(msgspec.yaml.encode(description | {"nodes": nodes}))
    return folder


def day_numbers(frame: pd.DataFrame, column: str) -> np.ndarray:
    return frame[column].to_numpy().astype("datetime64[D]").astype(np.int64)


@pytest.fixture(scope="module")
def shop(tmp_path_factory) -> tuple[Path, list[str]]:
    folder, notes = tmp_path_factory.mktemp("database"), []
    import_graph(write_database(folder / "shop"), folder / "out", note=notes.append, inputs=_target("customer"))
    return folder / "out", notes


def _target(type_: str):
    from cohort_gnn.dataset.importing.beside import SourceOptions

    return SourceOptions(target=type_)


def expected_edges() -> dict[tuple[str, str, str], set[tuple[int, int]]]:
    """By merging frames: what a key means."""
    rows = {name: frame.reset_index().rename(columns={"index": "row"}) for name, frame in TABLES.items()}

    def pairs(child: str, columns: list[str], parent: str, ids: list[str]) -> set[tuple[int, int]]:
        merged = rows[child].merge(rows[parent], left_on=columns, right_on=ids, suffixes=("", "_of_parent"))
        return set(zip(merged["row"], merged["row_of_parent"], strict=True))

    return {
        ("customer", "brought_by", "customer"): pairs("customer", ["brought by"], "customer", ["name"]),
        ("line", "customer", "customer"): pairs("line", ["customer"], "customer", ["name"]),
        ("line", "sold_in", "store"): pairs("line", ["store"], "store", ["store"]),
        ("note", "order_line", "line"): pairs("note", ["order", "line"], "line", ["order", "number"]),
    }


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_keys_are_relations_both_ways(shop, tmp_path, kind):
    path = shop[0]
    if kind == "csv":
        import_graph(write_database(tmp_path / "shop", kind="csv"), tmp_path / "out", inputs=_target("customer"))
        path = tmp_path / "out"
    data = open_dataset(path)
    since = {"store": np.full(5, NO_TIME)} | {
        name: day_numbers(TABLES[name], column)
        for name, column in (("customer", "since"), ("line", "at"), ("note", "at"))
    }
    expected = expected_edges()
    assert set(data.edge_types) == set(expected) | {(b, f"rev_{name}", a) for a, name, b in expected}
    for (source, name, target), pairs in expected.items():
        assert len(pairs) > 20
        for relation, type_, flip in (
            ((source, name, target), source, False),
            ((target, f"rev_{name}", source), target, True),
        ):
            edges = data.edge_types[relation]
            ends = edges.edge_index()[:: -1 if flip else 1]
            assert set(map(tuple, ends.T.tolist())) == pairs and edges.num_edges == len(pairs)
            if type_ == "store":
                assert edges.edge_times is None
            else:
                assert edges.edge_times.tolist() == since[type_][edges.indices].tolist()
    assert data.edge_types["line", "rev_order_line", "note"].reverse_of == ("note", "order_line", "line")
    for name, table in data.node_types.items():
        assert table.num_nodes == len(TABLES[name])
        assert (table.node_times is None) == (name == "store")


def test_what_is_left_out_is_said(shop):
    notes = " ".join(shop[1])
    assert "customer, brought_by, customer: no edges of 10 without a key, of 40 rows" in notes
    assert "line, sold_in, store: no edges of 11 without a key, of 120 rows" in notes
    assert "note, order_line, line: no edges of 1 with keys that no row has, of 51 rows" in notes
    assert original_ids(shop[0], "customer").to_pylist() == CUSTOMERS["name"].tolist()
    assert original_ids(shop[0], "line")[5].as_py() == "1\x1fb"


@pytest.mark.parametrize(
    ("type_", "change", "said"),
    [
        (
            "note",
            {"keys": [{"column": ["order", "line"], "to": "line"}]},
            "columns order, line of row 50: expected an id of type",
        ),
        (
            "customer",
            {"keys": [{"column": "brought by", "to": "customer", "nulls": "refuse"}]},
            "10 nulls in brought by",
        ),
        ("line", {"keys": [{"column": "customer", "to": "client"}]}, "expected one of the node types store, customer"),
        ("line", {"keys": [{"column": "client", "to": "customer"}]}, "expected a column client"),
        ("line", {"id": "order"}, "expected an id named once"),
        ("line", {"features": ["price", "order"]}, "expected columns that are no ids, found order among them"),
        ("store", {"features": ["store"]}, "expected columns that are no ids, found store among them"),
        ("line", {"keys": [{"column": "customer", "to": "customer"}] * 2}, "expected each relation once"),
    ],
)
def test_keys_that_do_not_fit_are_refused(tmp_path, type_, change, said):
    nodes = DESCRIPTION["nodes"] | {type_: DESCRIPTION["nodes"][type_] | change}
    folder = write_database(tmp_path / "shop", DESCRIPTION | {"nodes": nodes})
    assert said in str(refusal(folder, tmp_path / "out", target="customer"))


@pytest.mark.parametrize(
    "keys",
    [
        pa.array([None, np.float16(5), np.float16(6)], pa.float16()),
        pa.DictionaryArray.from_arrays([0, 1, 2], pa.array([None, 5.0, 6.0])),
        pa.array([None, "05", "6"], pa.string_view()),
        pa.array(["", "5", "6"]),
    ],
)
def test_keys_of_any_type_name_their_rows(tmp_path, keys):
    table = pa.table({"id": [5, 6, 7], "boss": keys, "age": [1.0, 2.0, 3.0]})
    node = {"table": table, "id": "id", "features": ["age"], "keys": [{"column": "boss", "to": "user"}]}
    if keys[0].as_py() == "":  # is nobody's key, and no null
        with pytest.raises(CohortError, match="NULLIF"):
            from_tables(tmp_path / "out", nodes={"user": node}, edges={})
        return
    relation = open_dataset(from_tables(tmp_path / "out", nodes={"user": node}, edges={})).edge_types[
        "user", "boss", "user"
    ]
    assert relation.indptr.tolist() == [0, 1, 2, 2] and relation.indices.tolist() == [1, 2]


def test_a_table_alone_keeps_its_names(tmp_path):
    nodes = {"customer": DESCRIPTION["nodes"]["customer"]}
    import_graph(write_database(tmp_path / "shop", {"nodes": nodes}), tmp_path / "out")
    assert list(open_dataset(tmp_path / "out").edge_types) == [
        ("customer", "brought_by", "customer"),
        ("customer", "rev_brought_by", "customer"),
    ]


@pytest.mark.parametrize("of_other", [False, True])
def test_a_key_that_is_called_as_the_reverse_of_another_is_not_taken_for_it(tmp_path, of_other):
    """Two keys of a person, "m" and "rev_m", name other rows."""
    persons = pd.DataFrame({"id": [0, 1, 2, 3], "m": [1, 2, 3, 0], "rev_m": [2, 2, 0, 0], "age": [1.0, 2, 3, 4]})
    others = persons if of_other else None
    keys = [{"column": "m", "to": "other" if of_other else "person"}, {"column": "rev_m", "to": "person"}]
    node = {"table": persons, "id": "id", "keys": keys[: 1 if of_other else 2], "features": ["age"]}
    other = {"table": others, "id": "id", "keys": keys[1:], "features": ["age"]}
    nodes = {"person": node} | ({"other": other} if of_other else {})
    with pytest.raises(CohortError, match="rev_m, person: expected the edges of person, m, .*\n.*name: of a key"):
        from_tables(tmp_path / "out", nodes=nodes, target="person")
    keys[1]["name"] = "fan"
    data = open_dataset(from_tables(tmp_path / "out", nodes=nodes, target="person"))
    there = {name[:2]: relation.edge_index().T.tolist() for name, relation in data.edge_types.items()}
    end = "other" if of_other else "person"
    assert sorted(there["person", "m"]) == [[0, 1], [1, 2], [2, 3], [3, 0]]
    assert sorted(there[end, "rev_m"]) == [[0, 3], [1, 0], [2, 1], [3, 2]]
    assert sorted(there[end, "fan"]) == [[0, 2], [1, 2], [2, 0], [3, 0]]
    assert sorted(there["person", "rev_fan"]) == [[0, 2], [0, 3], [2, 0], [2, 1]]


def test_encodings_are_those_of_rows_until_training_ends(tmp_path):
    """Ages and cities of later customers decide nothing: other values of theirs change no other row."""
    rows = pa.table({"customer": ["c0", "c7"], "day": pa.array(np.array([DAY + 50, DAY + 40])), "label": [0, 1]})
    later = rows.set_column(1, "day", pa.array(np.array([DAY + 60, DAY + 60])))
    described = DESCRIPTION | {
        "tasks": {
            "churn": {"nodes": "customer", "train": "train.parquet", "val": "val.parquet", "id": "customer",
                      "time": "day", "time_unit": "days", "label": "label", "metric": "auroc"}
        }
    }  # fmt: skip
    folder = write_database(tmp_path / "shop", described)
    pq.write_table(rows, folder / "train.parquet")
    pq.write_table(later, folder / "val.parquet")
    import_graph(folder, tmp_path / "out")
    early = day_numbers(CUSTOMERS, "since") <= int((DAY + 50).astype(np.int64))
    assert 0 < early.sum() < len(early)
    age, city = read_columns(tmp_path / "out").nodes["customer"]
    assert age.mean == pytest.approx([CUSTOMERS["age"][early].mean()])
    assert city.vocabulary == sorted(CUSTOMERS["city"][early].unique())
    assert open_task(tmp_path / "out", "churn").splits["train"].nodes.tolist() == [
        CUSTOMERS["name"].tolist().index(name) for name in ("c0", "c7")
    ]
    changed = CUSTOMERS.copy()
    changed.loc[~early, "city"], changed.loc[~early, "age"] = "Rom", 1000
    pq.write_table(pa.Table.from_pandas(changed, preserve_index=False), folder / "customer.parquet")
    import_graph(folder, tmp_path / "again")
    x, other = (open_dataset(tmp_path / name).node_types["customer"].x for name in ("out", "again"))
    assert np.array_equal(x[early], other[early]) and not np.array_equal(x, other)


def test_parts_of_a_key_do_not_run_together(tmp_path):
    parent = pa.table({"a": ["x", "x,y"], "b": ["y,z", "z"], "size": [1, 2]})
    child = pa.table({"a": ["x", "x,y", "x"], "b": ["y,z", "z", "z"], "size": [1, 2, 3]})
    for name, table in (("parent", parent), ("child", child)):
        pq.write_table(table, tmp_path / f"{name}.parquet")
    key = {"column": ["a", "b"], "to": "parent", "unknown_ids": "skip"}
    nodes = {
        "parent": {"file": "parent.parquet", "id": ["a", "b"]},
        "child": {"file": "child.parquet", "id": "none", "keys": [key]},
    }
    (tmp_path / "graph.yaml").write_bytes(msgspec.yaml.encode({"nodes": nodes, "target": "child"}))
    import_graph(tmp_path, tmp_path / "out")
    edges = open_dataset(tmp_path / "out").edge_types["child", "a_b", "parent"]
    assert edges.edge_index().tolist() == [[0, 1], [0, 1]]
    pq.write_table(pa.table({"a": ["x\x1f", "b"], "b": ["y", "z"], "size": [1, 2]}), tmp_path / "parent.parquet")
    with pytest.raises(CohortError, match="expected texts without U"):
        import_graph(tmp_path, tmp_path / "refused")


def test_no_memory_or_blocks_change_the_result(tmp_path, shop):
    import_graph(write_database(tmp_path / "shop"), tmp_path / "out", inputs=_target("customer"), memory=16_000_000)
    for file in itertools.chain(shop[0].glob("*.npy"), shop[0].glob("*.json")):
        same = (tmp_path / "out" / file.name).read_bytes() == file.read_bytes()
        assert same, file.name
