"""Tasks of a data set: written and opened; read from graph.yaml and tables; damaged or leaking ones are refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from import_helpers import refusal
from processes import cohort

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import from_tables, import_graph, original_ids, split_links
from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.dataset.columns import read_columns
from cohort_gnn.dataset.importing.renumber import renumber
from cohort_gnn.dataset.tasks import Task, TaskRows, instant_of, open_task, tasks_of, write_task

USERS = pa.table({"id": ["c", "a", "b"]})
ITEMS = pa.table({"sku": pa.array([70, 50], pa.int64())})
BUYS = pa.table({"user": ["a", "b", "c"], "item": pa.array([50, 70, 70], pa.int64())})
DAYS = {"train": ("2024-01-01", "2024-01-02"), "val": ("2024-01-03",) * 2, "test": ("2024-01-04",) * 2}
IDS = {"train": ("a", "a"), "val": ("b", "c"), "test": ("c", "b")}  # of nodes 1, 1; 2, 0; 0, 2
MINUTES = {"train": [19723 * 1440, 19724 * 1440], "val": [19725 * 1440] * 2, "test": [19726 * 1440] * 2}


def rows(split: str, **columns) -> pa.Table:
    days = pa.array(DAYS[split], pa.string()).cast(pa.timestamp("us"))
    return pa.table({"user": list(IDS[split]), "day": days} | columns)


LABELS = {
    "churn": {"train": ["yes", "no"], "val": ["no", "no"], "test": ["yes", "yes"]},
    "spent": {"train": [1.5, 2.0], "val": [0.0, -1.0], "test": [3.0, 4.0]},
    "rank": {"train": [0, 3], "val": [1, 1], "test": [2, 0]},
}
TASKS = {
    "churn": {"label": "churn", "metric": "accuracy"},
    "spent": {"label": "spent", "targets": "regression", "metric": "mae"},
    "rank": {"label": "rank"},
    "wants": {"label": ["a", "b"], "targets": "multilabel"},
    "next": {"label": "items", "to": "item", "metric": "map@10"},
}


def splits_of(task: str) -> dict[str, pa.Table]:
    if task == "wants":
        return {split: rows(split, a=[0, 1], b=[1, 1]) for split in DAYS}
    if task == "next":
        return {split: rows(split, items=pa.array([[50], [70, 50]])) for split in DAYS}
    return {split: rows(split, **{task: LABELS[task][split]}) for split in DAYS}


def keys_of(task: str) -> dict:
    return {"nodes": "user", "id": "user", "time": "day", "time_unit": "s", "time_zone": "UTC"} | TASKS[task]


NODES = {"user": {"id": "id"}, "item": {"id": "sku"}}
EDGES = {("user", "buys", "item"): {"source": "user", "target": "item"}}


def write_yaml(folder: Path, tasks: dict, kind: str = "parquet") -> Path:
    """graph.yaml of the shop with these tasks, whose tables are files; tasks: {name: (keys, tables)}."""
    for name, table in (("users", USERS), ("items", ITEMS), ("buys", BUYS)):
        pq.write_table(table, folder / f"{name}.parquet")
    described = {
        "nodes": {"user": {"file": "users.parquet", "id": "id"}, "item": {"file": "items.parquet", "id": "sku"}},
        "edges": [{"type": ["user", "buys", "item"], "file": "buys.parquet", "source": "user", "target": "item"}],
        "tasks": {},
    }
    for name, (keys, tables) in tasks.items():
        files = {split: f"{name}-{split}.{kind}" for split in tables}
        for split, table in tables.items():
            write = pq.write_table if kind == "parquet" else pyarrow.csv.write_csv
            write(table, folder / files[split])
        described["tasks"][name] = keys | files
    (folder / "graph.yaml").write_text(json.dumps(described))
    return folder


@pytest.fixture(scope="module")
def shop(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("shop")
    nodes = {type_: keys | {"table": table} for (type_, keys), table in zip(NODES.items(), (USERS, ITEMS), strict=True)}
    edges = {relation: keys | {"table": BUYS} for relation, keys in EDGES.items()}
    tasks = {task: keys_of(task) | splits_of(task) for task in TASKS}
    return from_tables(folder / "shop", nodes=nodes, edges=edges, tasks=tasks, reverse=True)


@pytest.mark.parametrize(
    ("task", "kind"),
    [(task, kind) for task in TASKS for kind in ("tables", "parquet", "csv") if (task, kind) != ("next", "csv")],
)
def test_tasks_are_read_from_tables(shop, tmp_path, task, kind):
    if kind != "tables":
        import_graph(write_yaml(tmp_path, {task: (keys_of(task), splits_of(task))}, kind), tmp_path / "out")
        shop = tmp_path / "out"
    opened = open_task(shop, task)
    assert opened.node_type == "user" and opened.time_unit == "s" and opened.metric == TASKS[task].get("metric")
    assert (opened.id_column, opened.time_column) == ("user", "day")
    ids = original_ids(shop, "user").to_pylist()
    for split, rows_ in opened.splits.items():
        if task == "next":
            expected = [(IDS[split][0], 1), (IDS[split][1], 0), (IDS[split][1], 1)]  # 50 is node 1
            assert [
                (ids[s], t) for s, t in zip(rows_.sources.tolist(), rows_.targets.tolist(), strict=True)
            ] == expected
            minutes = [MINUTES[split][0], *[MINUTES[split][1]] * 2]
        else:
            assert [ids[node] for node in rows_.nodes] == list(IDS[split])
            minutes = MINUTES[split]
        assert rows_.times.tolist() == [60 * minute for minute in minutes] and rows_.times.dtype == np.int64
    if task == "churn":
        assert (opened.targets, opened.num_classes, opened.class_names) == ("classification", 2, ["no", "yes"])
        assert opened.splits["train"].labels.tolist() == [1, 0] and opened.splits["val"].labels.tolist() == [0, 0]
    elif task == "spent":
        assert (opened.targets, opened.num_classes) == ("regression", 1)
        assert opened.splits["val"].labels.tolist() == [0.0, -1.0]
        assert opened.splits["val"].labels.dtype == np.float32
    elif task == "rank":
        assert (opened.num_classes, opened.class_names) == (4, None)
    elif task == "wants":
        assert (opened.num_classes, opened.class_names) == (2, ["a", "b"])
        assert opened.splits["test"].labels.tolist() == [[0, 1], [1, 1]]
    else:
        assert (opened.kind, opened.target_type, opened.targets, opened.num_classes) == ("link", "item", None, 0)


def test_a_data_set_with_tasks_needs_no_labels(shop, tmp_path):
    data, notes = open_dataset(shop), []
    assert (data.target, data.num_classes, len(data.train_ids)) == ("user", 0, 0)
    again = {"churn": (keys_of("churn"), splits_of("churn"))}
    import_graph(write_yaml(tmp_path, again), tmp_path / "out", note=notes.append)
    assert "task churn: train 2, val 2, test 2" in notes and not any("splits" in note for note in notes)
    assert tasks_of(shop) == sorted(TASKS) and tasks_of(shop / "tasks") == []
    found = cohort("dataset", "info", shop)
    assert "churn (classification of user: 2, 2, 2); next (user to item: 3, 3, 3)" in found.stdout
    assert cohort("dataset", "check", shop).returncode == 0


def test_labels_of_the_test_may_be_missing(tmp_path):
    tables = splits_of("churn")
    tables["test"] = tables["test"].drop_columns(["churn"])
    del tables["val"]
    import_graph(write_yaml(tmp_path, {"churn": (keys_of("churn"), tables)}), tmp_path / "out")
    task = open_task(tmp_path / "out", "churn")
    assert task.splits["test"].labels is None and task.splits["test"].num_rows == 2
    assert task.splits["val"].num_rows == 0 and task.splits["val"].labels.dtype == np.int64


def test_a_task_may_have_no_times(tmp_path):
    keys = {"nodes": "user", "id": "user", "label": "rank"}
    import_graph(write_yaml(tmp_path, {"rank": (keys, splits_of("rank"))}), tmp_path / "out")
    task = open_task(tmp_path / "out", "rank")
    assert task.splits["train"].times is None and task.time_column is None


@pytest.mark.parametrize(
    ("unit", "zone", "text", "expected"),
    [
        ("days", None, "1971-09-13", 620),
        ("s", "Europe/Berlin", "2024-07-01", 1_719_784_800),
        ("s", "Europe/Berlin", "2024-07-01T00:00Z", 1_719_792_000),
        ("ns", None, "1970-01-01 00:00:00.000001+00:00", 1000),
        ("s", None, "1969-12-31 23:59:59.5", -1),
        ("s", "Europe/Berlin", "2024-10-27 02:30", "a time that the clocks of Europe/Berlin show once"),
        ("s", "Europe/Berlin", "2024-10-27 02:30+01:00", 1_729_992_600),
        ("s", None, "2024-13-01", "an integer, or a timestamp such as"),
        (None, None, "2024-07-01", "an integer: no task says the unit"),
    ],
)
def test_a_timestamp_is_one_of_the_tasks_clocks(shop, unit, zone, text, expected):
    task = replace(open_task(shop, "churn"), time_unit=unit, time_zone=zone)
    if isinstance(expected, int):
        assert instant_of(task, text, "at") == expected
        return
    with pytest.raises(CohortError, match=expected):
        instant_of(task, text, "at")


@pytest.mark.parametrize("split", ["val", "test"])
def test_rows_that_are_no_later_than_those_before_are_refused(tmp_path, split):
    tables = splits_of("spent")
    earlier = {"val": "train", "test": "val"}[split]
    tables[split] = tables[split].set_column(1, "day", tables[earlier]["day"])
    keys = keys_of("spent")
    said = refusal(write_yaml(tmp_path, {"spent": (keys, tables)}), tmp_path / "out")
    assert said.place.startswith(f"tasks.spent: {split}, times[") and earlier in said.expected
    import_graph(write_yaml(tmp_path, {"spent": (keys | {"overlapping_times": "allow"}, tables)}), tmp_path / "out")
    assert open_task(tmp_path / "out", "spent").overlapping_times


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"nodes": "shop"}, "tasks.t: expected one of the node types user, item"),
        ({"to": "item"}, "tasks.t.targets: expected nothing, of links"),
        ({"metric": "auroc"}, "metric: expected a metric of regression"),
        ({"label": "none"}, "expected a column none"),
        ({"label": ["spent", "day"]}, "tasks.t.label: expected one column"),
        ({"time_zone": None}, "expected timestamps whose time zone is known"),
        ({"targets": None}, "expected the number of a class"),
        ({"surprise": 1}, "expected keys that are known"),
        ({"train": "../train.parquet"}, "expected a file in the folder"),
    ],
)
def test_keys_that_do_not_fit_are_refused(tmp_path, change, said):
    folder = write_yaml(tmp_path, {"t": (keys_of("spent"), splits_of("spent"))})
    described = json.loads((folder / "graph.yaml").read_text())
    described["tasks"]["t"] |= change
    (folder / "graph.yaml").write_text(json.dumps(described))
    assert said in str(refusal(folder, tmp_path / "out"))


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("user", "d", "expected an id of type user"),
        ("user", None, "expected a value in each row"),
        ("spent", None, "labels[0]: expected a label"),
        ("rank", 2**40, "tasks.t: label rank: expected at most 1000000 classes"),
        ("day", None, "expected a timestamp, found none"),
    ],
)
def test_rows_that_do_not_fit_are_refused(tmp_path, column, value, said):
    task = column if column in TASKS else "spent"
    tables = splits_of(task)
    train = tables["train"].to_pylist()
    train[0][column] = value
    tables["train"] = pa.Table.from_pylist(train, tables["train"].schema)
    assert said in str(refusal(write_yaml(tmp_path, {"t": (keys_of(task), tables)}), tmp_path / "out"))


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_dates_of_tasks_need_no_zone(tmp_path, kind):
    """In a text, too; predictions have dates then."""
    tables = {
        split: table.set_column(1, "day", table["day"].cast(pa.date32())) for split, table in splits_of("spent").items()
    }
    import_graph(
        write_yaml(tmp_path, {"t": (keys_of("spent") | {"time_zone": None, "time_unit": "days"}, tables)}, kind),
        tmp_path / "out",
    )
    task = open_task(tmp_path / "out", "t")
    assert (task.time_form, task.time_zone) == ("dates", "UTC")
    for split, table in tables.items():
        assert task.splits[split].times.tolist() == table["day"].cast(pa.int32()).to_pylist()


def test_sources_without_targets_are_refused(tmp_path):
    tables = splits_of("next")
    tables["val"] = rows("val", items=pa.array([[50], []], pa.list_(pa.int64())))
    said = refusal(write_yaml(tmp_path, {"next": (keys_of("next"), tables)}), tmp_path / "out")
    assert "row 1: expected at least one target" in str(said)


DAMAGES = {
    "val-nodes": (np.array([2, 3]), "val, nodes[1]: expected a node in [0, 3)"),
    "val-times": (np.array([2**40]), "val, times: expected shape [2]"),
    "test-labels": (np.array([0, 2]), "test, labels[1]: expected a class in [0, 2)"),
    "train-labels": (np.array([0, -1]), "train, labels[1]: expected a label"),
    "train-times": (np.array([0, -(2**63)]), "train, times[1]: expected a time"),
    "train-nodes": (np.array([0, 1], np.int32), "train, nodes: expected dtype int64"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_tasks_are_refused(tmp_path, name):
    import_graph(write_yaml(tmp_path, {"churn": (keys_of("churn"), splits_of("churn"))}), tmp_path / "out")
    array, said = DAMAGES[name]
    np.save(tmp_path / "out" / "tasks" / "churn" / f"{name}.npy", array)
    with pytest.raises(CohortError) as error:
        open_task(tmp_path / "out", "churn")
    assert said in str(error.value)
    found = cohort("dataset", "check", tmp_path / "out")
    assert found.returncode == 1 and said in found.stderr
    with pytest.raises(CohortError, match="expected one of churn, found chrun"):
        open_task(tmp_path / "out", "chrun")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ((b'"kind"', b'"kin"'), "expected the key kind"),
        ((b'"node_type": "user"', b'"node_type": 3'), "node_type: expected a text"),
        ((b"}", b"}}"), "expected JSON"),
        ((b'"num_classes": 2', b'"num_classes": "x'), "expected JSON"),
    ],
)
def test_a_damaged_description_of_a_task_is_refused(tmp_path, change, said):
    import_graph(write_yaml(tmp_path, {"churn": (keys_of("churn"), splits_of("churn"))}), tmp_path / "out")
    file = tmp_path / "out" / "tasks" / "churn" / "task.json"
    assert change[0] in file.read_bytes()
    file.write_bytes(file.read_bytes().replace(*change))
    with pytest.raises(CohortError) as error:
        open_task(tmp_path / "out", "churn")
    assert said in str(error.value)


def test_tasks_move_with_their_nodes(tmp_path):
    nodes = {"user": {"table": USERS.append_column("age", [[1, 2, 3]]), "id": "id", "features": ["age"]}}
    edges = {("user", "knows", "user"): {"table": pa.table({"src": ["a", "a", "b"], "dst": ["b", "c", "c"]})}}
    folder = from_tables(
        tmp_path / "one", nodes=nodes, edges=edges, tasks={"rank": keys_of("rank") | splits_of("rank")}
    )
    task = open_task(folder, "rank")
    assert task.node_type == "node"
    (tmp_path / "new").mkdir()
    old_of_new = renumber(folder, tmp_path / "new")
    moved = open_task(tmp_path / "new", "rank")
    assert old_of_new[moved.splits["train"].nodes].tolist() == task.splits["train"].nodes.tolist()
    split_links(folder, tmp_path / "split", shares=(0.3, 0), negatives=1)
    assert open_task(tmp_path / "split", "rank").splits["val"].labels.tolist() == [1, 1]


def test_a_written_task_is_the_one_that_is_opened(shop):
    task = open_task(shop, "churn")
    two = TaskRows(np.array([0, 0]), np.array([5, 6]), np.array([1, 0]))
    none = TaskRows(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64))
    new = Task(
        "mine", "node", "item", {"train": two, "val": none, "test": none}, targets="classification", num_classes=2
    )
    write_task(shop, new)
    opened = open_task(shop, "mine")
    assert replace(opened, splits={}).__dict__ == replace(new, splits={}).__dict__
    assert opened.splits["train"].times.tolist() == [5, 6]
    with pytest.raises(CohortError, match="expected a node in"):
        write_task(shop, replace(new, splits=task.splits, name="other"))
    assert "other" not in tasks_of(shop)


def joined(folder: Path, times: list[int], **more) -> list[str]:
    """What is said of an import whose customers joined at some times, and are judged at 32, 41 and 42."""
    users = pa.table({"id": [1, 2, 3], "joined": times, "age": [1.0, 2.0, 6.0]})
    splits = {
        split: pa.table({"id": ids, "day": [day] * 2, "y": [0, 1]})
        for split, ids, day in (("train", [1, 2], 32), ("val", [1, 3], 41), ("test", [1, 3], 42))
    }
    age, notes = {"column": "age", "standardize": True}, []
    node = {"table": users, "id": "id", "time": "joined", "features": [age]}
    task = {"nodes": "user", "id": "id", "time": "day", "label": "y", **splits, **more}
    edges = {("user", "knows", "user"): {"table": pa.table({"src": [1], "dst": [2]})}}
    from_tables(folder, nodes={"user": node}, edges=edges, tasks={"churn": task}, note=notes.append)
    return [note for note in notes if note.startswith("task churn: rows")]


def test_rows_earlier_than_their_nodes_are_told(tmp_path):
    assert joined(tmp_path / "set", [0, 32, 41]) == []
    (note,) = joined(tmp_path / "early", [0, 33, 42])
    assert note.startswith("task churn: rows earlier than their own nodes, train 1, val 1, test 0; leave them out")


@pytest.mark.parametrize(("rows_until", "mean"), [(None, 3.0), (31, 1.5)])
def test_means_are_of_no_rows_that_a_task_does_not_see(tmp_path, rows_until, mean):
    joined(tmp_path / "set", [0, 10, 32], rows_until=rows_until)
    ((age,),) = read_columns(tmp_path / "set").nodes.values()
    assert age.mean == [mean]
