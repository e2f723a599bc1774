"""`cohort dataset describe` proposes what `cohort dataset import` reads: of folders, of DuckDB, and of RelBench."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from pathlib import Path

import duckdb
import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from database_test import DESCRIPTION, TABLES, write_database
from import_helpers import refusal
from processes import cohort

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import import_graph
from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.dataset.importing.beside import SourceOptions
from cohort_gnn.dataset.importing.describe import describe
from cohort_gnn.dataset.importing.kept import keep_imported
from cohort_gnn.dataset.tables.duck_table import tables_of
from cohort_gnn.dataset.tasks import open_task, tasks_of

RNG = np.random.default_rng(8)
CREATE = [
    'CREATE TABLE store (store INTEGER PRIMARY KEY, size DOUBLE)',
    'CREATE TABLE customer (name VARCHAR PRIMARY KEY, "brought by" VARCHAR, age DOUBLE, city VARCHAR, since TIMESTAMP)',
    'CREATE TABLE line ("order" INTEGER, number VARCHAR, customer VARCHAR REFERENCES customer (name),'
    ' store INTEGER REFERENCES store (store), price FLOAT, "at" TIMESTAMP, PRIMARY KEY ("order", number))',
    'CREATE TABLE note ("order" INTEGER, line VARCHAR, stars INTEGER, "at" TIMESTAMP)',
]  # fmt: skip


@pytest.fixture(scope="module")
def duck(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("duck") / "shop.duckdb"
    with duckdb.connect(str(path)) as connection:
        for statement, (name, frame) in zip(CREATE, TABLES.items(), strict=True):
            connection.execute(statement)
            connection.register("frame", frame)
            connection.execute(f"INSERT INTO {name} SELECT * FROM frame")
    return path


def test_duckdb_says_its_keys(duck):
    proposed = msgspec.yaml.decode(describe(duck))["nodes"]
    assert {name: keys["id"] for name, keys in proposed.items()} == {
        "customer": "name", "line": ["order", "number"], "note": "none", "store": "store"
    }  # fmt: skip
    assert proposed["line"]["keys"] == [{"column": "customer", "to": "customer"}, {"column": "store", "to": "store"}]
    assert proposed["line"]["file"] == "shop.duckdb:line" and proposed["line"]["time_zone"] == "UTC"


def test_what_the_constraints_of_duckdb_leave_open_is_proposed(tmp_path):
    """Primary keys are said, of foreign keys only one; views have none."""
    with duckdb.connect(str(tmp_path / "shop.duckdb")) as connection:
        connection.sql("CREATE TABLE users (id INTEGER PRIMARY KEY, mail INTEGER UNIQUE)")
        connection.sql("INSERT INTO users SELECT i, i + 7 FROM range(100) r(i)")
        connection.sql("CREATE TABLE mails (mail INTEGER REFERENCES users (mail), words INTEGER)")
        connection.sql("INSERT INTO mails SELECT 7 + i % 5, i % 7 FROM range(99) r(i)")
        connection.sql("CREATE TABLE orders (order_id INTEGER PRIMARY KEY, user_id INTEGER, kind INTEGER)")
        connection.sql("INSERT INTO orders SELECT i, i % 90, i % 3 FROM range(200) r(i)")
        connection.sql("CREATE TABLE lines (number INTEGER, order_id INTEGER REFERENCES orders (order_id))")
        connection.sql("INSERT INTO lines SELECT i, i % 200 FROM range(300) r(i)")
        connection.sql("CREATE VIEW spent AS SELECT user_id, count(*) bought FROM orders GROUP BY ALL")
    text = describe(tmp_path / "shop.duckdb")
    proposed = msgspec.yaml.decode(text)["nodes"]
    assert {name: table["id"] for name, table in proposed.items()} == {
        "users": "id", "orders": "order_id", "lines": "none", "mails": "none", "spent": "none"
    }  # fmt: skip
    to_users = [{"column": "user_id", "to": "users"}]
    assert proposed["orders"]["keys"] == proposed["spent"]["keys"] == to_users and "keys" not in proposed["users"]
    assert proposed["lines"]["keys"] == [{"column": "order_id", "to": "orders"}] and "features" not in proposed["lines"]
    assert "# mails.mail is a foreign key of mail of users, which is not its primary key: no relation." in text
    assert text.count("by names and values: check them") == 2, "of orders and of spent"
    (tmp_path / "graph.yaml").write_text(text)
    import_graph(tmp_path, tmp_path / "out", inputs=SourceOptions(target="users"))
    assert open_dataset(tmp_path / "out").edge_types["spent", "user_id", "users"].num_edges == 90


def test_tables_of_duckdb_are_those_of_parquet(duck, tmp_path):
    write_database(tmp_path / "parquet")
    nodes = {name: keys | {"file": f"shop.duckdb:{name}"} for name, keys in DESCRIPTION["nodes"].items()}
    (duck.parent / "graph.yaml").write_bytes(msgspec.yaml.encode(DESCRIPTION | {"nodes": nodes}))
    for source, out in ((tmp_path / "parquet", "a"), (duck.parent / "graph.yaml", "b")):
        import_graph(source, tmp_path / out, inputs=SourceOptions(target="customer"))
    names = sorted(path.name for path in (tmp_path / "a").glob("*.npy"))
    assert names == sorted(path.name for path in (tmp_path / "b").glob("*.npy")) and len(names) > 30
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name


def test_tables_of_other_schemas_are_told(tmp_path):
    """Their constraints are not those of a table of the same name."""
    with duckdb.connect(str(tmp_path / "shop.duckdb")) as connection:
        connection.sql("CREATE SCHEMA old")
        for schema, key in (("old", "size"), ("main", "id")):
            connection.sql(f"CREATE TABLE {schema}.shop (id INTEGER, size INTEGER, PRIMARY KEY ({key}))")
            connection.sql(f"INSERT INTO {schema}.shop VALUES (1, 2), (2, 3)")
        connection.sql("CREATE TABLE old.visit (size INTEGER REFERENCES old.shop (size))")
    text = describe(tmp_path / "shop.duckdb")
    assert {name: table["id"] for name, table in msgspec.yaml.decode(text)["nodes"].items()} == {"shop": "id"}
    for name in ("shop", "visit"):
        assert f"# left out: old.{name}, which is not in the schema main; a view there may show it." in text


def test_names_that_types_may_not_have_are_proposed_otherwise(tmp_path):
    """Tables and files may be called as node types are not, and have no rows."""
    with duckdb.connect(str(tmp_path / "shop.duckdb")) as connection:
        connection.sql('CREATE TABLE "order items" (id INTEGER PRIMARY KEY, price DECIMAL(9, 2))')
        connection.sql('INSERT INTO "order items" SELECT i, 1.5 FROM range(90) r(i)')
        connection.sql('CREATE TABLE "order.items" (item INTEGER REFERENCES "order items" (id), n INTEGER)')
        connection.sql('INSERT INTO "order.items" SELECT i, i % 3 FROM range(80) r(i)')
        connection.sql("CREATE TABLE nobody (id INTEGER PRIMARY KEY)")
    text = describe(tmp_path / "shop.duckdb")
    proposed = msgspec.yaml.decode(text)["nodes"]
    assert {name: table["file"] for name, table in proposed.items()} == {
        "order_items": "shop.duckdb:order items", "order_items_2": "shop.duckdb:order.items"
    }  # fmt: skip
    assert proposed["order_items_2"]["keys"] == [{"column": "item", "to": "order_items"}]
    assert "# left out: shop.duckdb:nobody, which has no rows." in text
    assert "# no feature: price (decimal128(9, 2): CAST(price AS DOUBLE) in SQL makes a number of it)" in text
    (tmp_path / "graph.yaml").write_text(text)
    import_graph(tmp_path, tmp_path / "out", inputs=SourceOptions(target="order_items"))
    assert open_dataset(tmp_path / "out").edge_types["order_items_2", "item", "order_items"].num_edges == 80
    pq.write_table(pa.table({"id": [1, 2], "x": [3.0, 4.0]}), tmp_path / "my people.v2.parquet")
    assert list(msgspec.yaml.decode(describe(tmp_path))["nodes"]) == ["my_people"]


def test_what_cannot_be_described_is_refused_in_words(tmp_path):
    duckdb.connect(str(tmp_path / "none.duckdb")).close()
    with pytest.raises(CohortError, match="expected at least one table, found none"):
        describe(tmp_path / "none.duckdb")
    with duckdb.connect(str(tmp_path / "empty.duckdb")) as connection:
        connection.sql("CREATE TABLE t (id INTEGER)")
    with pytest.raises(CohortError, match="expected tables with rows, found none"):
        describe(tmp_path / "empty.duckdb")
    with duckdb.connect(str(tmp_path / "broken.duckdb")) as connection:
        connection.sql("CREATE TABLE t (id INTEGER)")
        connection.sql("CREATE VIEW v AS SELECT id FROM t")
        connection.sql("DROP TABLE t")
    with pytest.raises(CohortError, match="broken.duckdb:v: expected a table or view.*\n*.*\n.*mend or drop the view"):
        describe(tmp_path / "broken.duckdb")


@pytest.mark.parametrize("version", ["0.10.2", "1.1.3", "1.2.0", "1.10.0"])
def test_the_oldest_duckdb_is_1_2(monkeypatch, duck, version):
    monkeypatch.setattr(duckdb, "__version__", version)
    if version in ("1.2.0", "1.10.0"):
        assert tables_of(duck)
    else:
        with pytest.raises(CohortError, match=f"expected DuckDB 1.2 or newer, found {version}"):
            tables_of(duck)


def test_a_file_of_duckdb_is_refused_in_words(duck, tmp_path):
    assert "cohort dataset describe shop.duckdb" in str(refusal(duck, tmp_path / "out"))
    nodes = {"store": {"file": "shop.duckdb:shops", "id": "store"}}
    (duck.parent / "no.yaml").write_bytes(msgspec.yaml.encode({"nodes": nodes}))
    said = refusal(duck.parent / "no.yaml", tmp_path / "out")
    assert said.expected == "one of the tables customer, line, note, store" and said.found == "shops"
    (tmp_path / "broken.duckdb").write_bytes(b"0" * 4096)
    with pytest.raises(CohortError, match="expected a file that DuckDB reads"):
        describe(tmp_path / "broken.duckdb")
    with pytest.raises(CohortError, match="found no such file"):
        describe(tmp_path / "none.duckdb")


VALUES = {
    "plain": ([1.0, 2.0, 3.0], {"column": "plain", "standardize": True}),
    "missing": ([1, None, 3], {"column": "missing", "nulls": "mean", "standardize": True}),
    "odd": ([1.0, float("nan"), 3.0], {"column": "odd", "nulls": "mean", "nan": "null", "standardize": True}),
    "yes no": ([True, False, None], {"column": "yes no", "nulls": "mean", "standardize": True}),
    "kind": (["a", "b", "a"], {"column": "kind", "kind": "category", "nulls": "unknown"}),
    "vector": ([[1.0, 2], [3, 4], [5, 6]], {"column": "vector"}),
    "no": (["x", "y", "z"], "no (texts, each of which comes once)"),
    "large": ([1, 2, 2**40], "large (integers that float32 rounds)"),
    "inf": ([1.0, 2.0, float("inf")], "inf (infinite values)"),
    "empty": (pa.nulls(3), "empty (no values)"),
    "ragged": ([[1.0], [2.0, 3.0], [4.0]], "ragged (list<element: double>)"),
    "bytes": ([b"a", b"\xff", b"a"], "bytes (binary that is no text)"),
    "gone": (pa.array([1, None, 3], pa.timestamp("s")), "gone (times, 1 of which are missing)"),
    "due": (
        pa.array([1, 2, 3], pa.timestamp("ms", "UTC")),
        {
            "column": "due",
            "kind": "time",
            "parts": ["year", "month", "day", "weekday", "hour"],
            "zone": "UTC",
            "standardize": True,
        },
    ),
}


def test_columns_are_proposed_by_their_values_and_read(tmp_path):
    columns = {name: values for name, (values, _) in VALUES.items()}
    pq.write_table(pa.table(columns | {"thing_id": [7, 8, 9]}), tmp_path / "things.parquet")
    pq.write_table(
        pa.table({"thing_id": [7, 7, 9], "at": pa.array([0, 1, 5], pa.timestamp("us"))}), tmp_path / "uses.parquet"
    )
    text = describe(tmp_path)
    things = msgspec.yaml.decode(text)["nodes"]["things"]
    assert things["features"] == [entry for _, entry in VALUES.values() if isinstance(entry, dict)]
    for _, entry in VALUES.values():
        assert isinstance(entry, dict) or f"# no feature: {entry}" in text
    assert things["id"] == "thing_id" and "time" not in things
    uses = msgspec.yaml.decode(text)["nodes"]["uses"]
    assert uses["keys"] == [{"column": "thing_id", "to": "things"}]
    assert (uses["id"], uses["time"], uses["time_unit"], uses["time_zone"]) == ("none", "at", "us", "UTC")
    (tmp_path / "graph.yaml").write_text(text)
    import_graph(tmp_path, tmp_path / "out", inputs=SourceOptions(target="things"))
    assert open_dataset(tmp_path / "out").node_types["things"].feature_dim == 1 + 3 * 2 + 3 + 2 + 5
    printed = cohort("dataset", "describe", tmp_path)
    assert printed.returncode == 0 and printed.stdout == text


def test_ids_are_no_features_whatever_they_are_called(tmp_path):
    """A column that comes once in one table and whose values another table has under its name is a key."""
    number, moments = np.arange(100) * 7, pa.array(np.arange(100), pa.timestamp("s"))
    people = {"person_no": number, "badge": number + 3, "name": [f"n{i}" for i in number], "born": moments}
    pq.write_table(pa.table(people | {"since": moments}), tmp_path / "people.parquet")
    visits = {"person_no": number[RNG.integers(100, size=300)], "name": ["x", "y", "z"] * 100, "cost": [1, 2, 3] * 100}
    pq.write_table(pa.table(visits), tmp_path / "visits.parquet")
    text = describe(tmp_path)
    proposed = msgspec.yaml.decode(text)["nodes"]
    assert proposed["people"]["id"] == "person_no" and "time" not in proposed["people"]
    assert proposed["visits"]["keys"] == [{"column": "person_no", "to": "people"}]
    features = {name: [entry["column"] for entry in table["features"]] for name, table in proposed.items()}
    assert features == {"people": ["born", "since"], "visits": ["name", "cost"]}
    assert "# no feature: badge (integers, each of which comes once)" in text
    assert "# no time: one of born, since may be it; without one, rows are always there" in text


def test_keys_of_other_names_are_found_by_values(tmp_path):
    """Texts and columns that are called as ids are keys of the only table that has their values; others may be."""
    people = {"id": np.arange(100) + 1000, "age": RNG.random(100)}
    words = [f"t{i}" for i in range(70)]
    posts = {
        "id": np.arange(300) + 1,
        "editor_id": RNG.permutation(np.arange(300) % 100) + 1000,
        "parentId": np.arange(300.0) // 2 + 1,
        "author": RNG.permutation(np.arange(300) % 100) + 1000,
        "topic": RNG.choice(words, 300),
        "type_id": RNG.integers(5000, 5004, 300),
        "flag": RNG.integers(0, 2, 300),
    }
    posts["parentId"][::5] = np.nan  # as pandas writes integers with nulls
    pq.write_table(pa.table(people), tmp_path / "people.parquet")
    pq.write_table(pa.table({"id": words}), tmp_path / "subjects.parquet")
    pq.write_table(pa.table(posts), tmp_path / "posts.parquet")
    text = describe(tmp_path)
    proposed = msgspec.yaml.decode(text)["nodes"]
    assert proposed["posts"]["keys"] == [
        {"column": "editor_id", "to": "people"}, {"column": "parentId", "to": "posts"},
        {"column": "topic", "to": "subjects"},
    ]  # fmt: skip
    assert [entry["column"] for entry in proposed["posts"]["features"]] == ["author", "flag"]
    assert "author, standardize: true}  # its values are ids of people: if it names one, put it under keys" in text
    assert "# no feature: type_id (called as an id: name it under keys, or kind: category)" in text
    assert [entry["column"] for entry in proposed["people"]["features"]] == ["age"] and text.count("if it names") == 1
    (tmp_path / "graph.yaml").write_text(text)
    import_graph(tmp_path, tmp_path / "out", inputs=SourceOptions(target="posts"))
    edges = open_dataset(tmp_path / "out").edge_types["posts", "editor_id", "people"].edge_index()
    assert dict(edges.T.tolist()) == dict(enumerate((posts["editor_id"] - 1000).tolist()))


def test_what_a_folder_has_beside_its_tables_is_told(tmp_path):
    pq.write_table(pa.table({"id": [1, 2], "age": [3, 4]}), tmp_path / "people.parquet")
    (tmp_path / "votes.csv").write_text("voter,vote\n1,2\n")
    assert "# left out: votes.csv, whose columns have no types" in describe(tmp_path)
    (tmp_path / "raw").mkdir()
    for name in ("a", "b"):
        pq.write_table(pa.table({f"{name}_id": [1]}), tmp_path / f"raw/{name}.parquet")
    with pytest.raises(CohortError, match=f"cohort dataset describe {tmp_path / 'raw'}"):
        describe(tmp_path)


def test_databases_of_others_are_refused_with_what_reads_them(tmp_path):
    with contextlib.closing(sqlite3.connect(tmp_path / "x.db")) as connection:
        connection.execute("CREATE TABLE t (a)")
        connection.commit()
    with pytest.raises(CohortError, match="found a database of SQLite\n.*sqlite3.connect\\('x.db'\\)\\).to_parquet"):
        describe(tmp_path / "x.db")
    with duckdb.connect(str(tmp_path / "lake.ducklake")) as connection:
        connection.sql("CREATE TABLE ducklake_snapshot (snapshot_id BIGINT)")
    with pytest.raises(CohortError, match="found the catalog of a DuckLake\n.*ATTACH 'ducklake:"):
        describe(tmp_path / "lake.ducklake")


def test_folders_without_tables_are_refused(tmp_path):
    (tmp_path / "a.csv").write_text("x\n1\n")
    with pytest.raises(CohortError, match="expected tables whose columns have types"):
        describe(tmp_path)
    for name in ("a.2024.parquet", "a.2025.parquet"):
        pq.write_table(pa.table({"x": [1]}), tmp_path / name)
    with pytest.raises(CohortError, match="found a.2024.parquet and a.2025.parquet"):
        describe(tmp_path)
    with pytest.raises(CohortError, match="name the folder of the tables"):
        describe(tmp_path / "a.2024.parquet")


# --- RelBench -------------------------------------------------------------------------------------------------------

COUNT, PRODUCTS, PURCHASES = 30, 8, 200
START = pd.Timestamp("2024-01-01")
AT = START + pd.to_timedelta(np.sort(RNG.integers(0, 300, PURCHASES)), unit="D")
DB = {
    "customers": pd.DataFrame({"customer_id": np.arange(COUNT), "age": RNG.integers(18, 90, COUNT)}),
    "products": pd.DataFrame({"product_id": np.arange(PRODUCTS), "price": RNG.random(PRODUCTS)}),
    "purchases": pd.DataFrame(
        {
            "customer_id": RNG.integers(0, COUNT, PURCHASES),
            "product_id": np.where(RNG.random(PURCHASES) < 0.1, np.nan, RNG.integers(0, PRODUCTS, PURCHASES)),
            "amount": RNG.random(PURCHASES),
            "when": AT,
        }
    ),
}
MANIFEST = {
    "name": "shop",
    "manifest_version": 1,
    "val_timestamp": "2024-05-01",
    "test_timestamp": "2024-07-01",
    "tables": {
        "customers": {"pkey": "customer_id", "time_col": None, "fkeys": {}},
        "products": {"pkey": "product_id", "time_col": None, "fkeys": {}},
        "purchases": {
            "pkey": None,
            "time_col": "when",
            "fkeys": {"customer_id": "customers", "product_id": "products"},
        },
    },
}
ENTITY = {"entity_table": "customers", "entity_col": "customer_id", "time_col": "timestamp", "kind": "external"}
LABELS = {
    "churn": lambda count: RNG.integers(0, 2, count),
    "spent": lambda count: RNG.random(count),
    "next": lambda count: [sorted(set(RNG.integers(0, PRODUCTS, 3).tolist())) for _ in range(count)],
}
TASKS = {
    "churn": ENTITY | {"task_type": "binary_classification", "target_col": "churn", "timedelta": "20 days",
                       "num_eval_timestamps": 2},
    "spent": ENTITY | {"task_type": "regression", "target_col": "spent", "timedelta": "20 days",
                       "remove_columns": [["purchases", "amount"]]},
    "next": {"task_type": "recommendation", "kind": "external", "src_entity_table": "customers",
             "src_entity_col": "customer_id", "dst_entity_table": "products", "dst_entity_col": "product_id",
             "time_col": "timestamp", "eval_k": 5, "timedelta": "20 days", "num_eval_timestamps": 2},
}  # fmt: skip
SEEDS = {"train": ("2024-02-01", "2024-03-01"), "val": ("2024-05-01",), "test": ("2024-07-01",)}


@pytest.fixture(scope="module")
def relbench_folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("relbench") / "shop"
    (folder / "db").mkdir(parents=True)
    (folder / "manifest.yaml").write_bytes(msgspec.yaml.encode(MANIFEST))
    for name, frame in DB.items():
        frame.to_parquet(folder / "db" / f"{name}.parquet")
    for name, task in TASKS.items():
        path = folder / "tasks" / name
        path.mkdir(parents=True)
        (path / "manifest.yaml").write_bytes(msgspec.yaml.encode({"name": name} | task))
        label = task.get("target_col", "product_id")
        for split, days in SEEDS.items():
            frame = pd.concat(
                pd.DataFrame({"timestamp": pd.Timestamp(day), "customer_id": np.arange(COUNT)}) for day in days
            )
            frame[label] = LABELS[name](len(frame))
            frame.to_parquet(path / f"{split}.parquet", index=False)
    (folder / "tasks" / "later").mkdir()
    (folder / "tasks" / "later" / "manifest.yaml").write_bytes(msgspec.yaml.encode(TASKS["churn"] | {"name": "later"}))
    return folder


@pytest.fixture(scope="module")
def relbench_data(relbench_folder) -> Path:
    import_graph(relbench_folder, relbench_folder.parent / "out", as_proposed=True)
    return relbench_folder.parent / "out"


def test_a_proposal_is_taken_when_asked_for(relbench_folder, relbench_data, duck, tmp_path):
    assert (relbench_data / "graph.yaml").read_text() == describe(relbench_folder)
    assert not (relbench_folder / "graph.yaml").exists()
    result = cohort("dataset", "import", duck, tmp_path / "out", "--as-proposed", "--target", "customer")
    assert result.returncode == 0 and "columns are what was proposed" in result.stderr, result.stderr
    assert set(open_dataset(tmp_path / "out").node_types) == set(TABLES)
    (tmp_path / "graph.yaml").write_text("nodes: {}")
    said = refusal(tmp_path, tmp_path / "none", as_proposed=True)
    assert str(said).startswith("--as-proposed: expected tables without graph.yaml")


def test_what_is_made_of_a_folder_is_kept_while_its_files_are_the_same(relbench_folder, tmp_path):
    folder, out, said = tmp_path / "shop", tmp_path / "data", []
    shutil.copytree(relbench_folder, folder)
    with pytest.raises(CohortError, match="(?s)expected graph.yaml.*--as-proposed takes it"):
        keep_imported(folder, out)
    assert not out.exists()
    keep_imported(folder, out, as_proposed=True, note=said.append)
    for text in (
        "task later is left out: no train.parquet.",
        "purchases: no feature: amount (hidden from tasks: spent)",
        "purchases: time_zone: UTC (or the zone whose clocks they show)",
    ):
        assert f"proposed: {text}" in said
    assert said[-1] == f"{folder} was imported: {out}" and tasks_of(out) == ["churn", "next", "spent"]
    made = (out / "meta.json").stat().st_mtime_ns
    keep_imported(folder, out, as_proposed=True, note=said.append)
    assert "was imported before" in said[-1] and (out / "meta.json").stat().st_mtime_ns == made
    (folder / "graph.yaml").write_text(describe(folder))
    with pytest.raises(CohortError, match="--as-proposed: expected tables without graph.yaml"):
        keep_imported(folder, out, as_proposed=True)
    with pytest.raises(CohortError, match="(?s)found that of other files, graph.yaml among them.*--import-to"):
        keep_imported(folder, out)
    with pytest.raises(CohortError, match="found something else"):
        keep_imported(folder, relbench_folder)
    with pytest.raises(CohortError, match="expected a folder outside"):
        keep_imported(folder, folder / "data")


def test_a_folder_of_relbench_needs_a_description(relbench_folder, tmp_path):
    said = refusal(relbench_folder, tmp_path / "out")
    assert "cohort dataset describe" in said.hint and said.expected.startswith("graph.yaml")
    text = describe(relbench_folder)
    assert "# task later is left out: no train.parquet." in text
    assert "# no feature: amount (hidden from tasks: spent)" in text
    (relbench_folder.parent / "damaged" / "db").mkdir(parents=True)
    (relbench_folder.parent / "damaged" / "manifest.yaml").write_text("tables: 3")
    with pytest.raises(CohortError, match="manifest.yaml: tables: expected"):
        describe(relbench_folder.parent / "damaged")


def test_tasks_of_relbench_are_read(relbench_data, relbench_folder):
    assert tasks_of(relbench_data) == ["churn", "next", "spent"]
    found = {name: open_task(relbench_data, name) for name in TASKS}
    assert {name: task.metric for name, task in found.items()} == {"churn": "auroc", "spent": "nmae", "next": "map@5"}
    assert {task.time_unit for task in found.values()} == {"s"}
    until = {name: task.rows_until for name, task in found.items()}
    assert until == {"churn": 1_719_792_000, "spent": None, "next": 1_719_792_000}, "2024-07-01"
    for name, task in found.items():
        for split in SEEDS:
            frame = pd.read_parquet(relbench_folder / "tasks" / name / f"{split}.parquet")
            seconds = frame["timestamp"].to_numpy().astype("datetime64[s]").astype(np.int64)
            rows = task.splits[split]
            if name == "next":
                lengths = frame["product_id"].map(len)
                assert rows.sources.tolist() == np.repeat(frame["customer_id"], lengths).tolist()
                assert rows.targets.tolist() == np.concatenate(frame["product_id"]).tolist()
                assert rows.times.tolist() == np.repeat(seconds, lengths).tolist()
            else:
                assert rows.nodes.tolist() == frame["customer_id"].tolist()
                assert rows.labels.tolist() == pytest.approx(frame[name].tolist())
                assert rows.times.tolist() == seconds.tolist()
