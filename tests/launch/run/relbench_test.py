"""Tables of predictions of `cohort train`, by the evaluator of RelBench itself: both measure the same."""

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import duckdb
import msgspec
import numpy as np
import pandas as pd
import pytest
from processes import ALL_TESTS, ran

from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.dataset import open_task

pytestmark = [
    pytest.mark.skipif(not ALL_TESTS, reason="downloads RelBench: tests/run.sh --all runs it"),
    pytest.mark.usefixtures("shm"),
]
# RelBench imports huggingface_hub to know a local folder, and its models are of pytorch-frame.
PACKAGES = ("relbench==3.0.2", "huggingface_hub==1.0.1", "pytorch-frame==0.3.0")
EXAMPLES = Path(__file__).parents[3] / "examples"
COUNT, PRODUCTS, PURCHASES = 80, 20, 3000
KEYS = {"entity_table": "customers", "entity_col": "customer_id", "time_col": "timestamp", "timedelta": "30 days"}
TASKS = {
    "churn": KEYS | {"task_type": "binary_classification", "target_col": "churn"},
    "spent": KEYS | {"task_type": "regression", "target_col": "spent"},
    "next": {"task_type": "recommendation", "src_entity_table": "customers", "src_entity_col": "customer_id",
             "dst_entity_table": "products", "dst_entity_col": "product_id", "time_col": "timestamp", "eval_k": 4,
             "timedelta": "30 days"},
}  # fmt: skip
SQL = {
    "churn": "CAST(COUNT(p.customer_id) = 0 AS INTEGER) AS churn",
    "spent": "COALESCE(SUM(p.amount), 0) AS spent",
    "next": "LIST(DISTINCT p.product_id) AS product_id",
}
DAYS = {"train": ["2024-02-01", "2024-03-02", "2024-04-01"], "val": ["2024-05-01"], "test": ["2024-07-01"]}


@pytest.fixture(scope="module")
def relbench(tmp_path_factory, shm) -> Path:
    """The folder of the package, beside which everything that it needs is installed."""
    folder = tmp_path_factory.mktemp("relbench") / "packages"
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", folder, *PACKAGES]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert ended.returncode == 0, ended.stderr
    return folder


@pytest.fixture(scope="module")
def shop(tmp_path_factory) -> Path:
    """A data set in RelBench's format; labels tell of the 30 days that follow."""
    folder, rng = tmp_path_factory.mktemp("relbench") / "shop", np.random.default_rng(8)
    customer = rng.integers(0, COUNT, PURCHASES)
    purchases = pd.DataFrame(
        {
            "customer_id": np.where(rng.random(PURCHASES) < 0.5, customer, customer // 2),
            "product_id": (customer // 8 + rng.integers(0, 4, PURCHASES)) % PRODUCTS,
            "amount": rng.random(PURCHASES) * (1 + customer % 3),
            "when": pd.Timestamp("2024-01-01") + pd.to_timedelta(np.sort(rng.integers(0, 240, PURCHASES)), unit="D"),
        }
    )
    tables = {
        "customers": pd.DataFrame(
            {
                "customer_id": np.arange(COUNT),
                "age": rng.integers(18, 90, COUNT),
                "brought_by": np.where(rng.random(COUNT) < 0.5, np.nan, rng.integers(0, COUNT, COUNT)),
            }
        ),
        "products": pd.DataFrame({"product_id": np.arange(PRODUCTS), "price": rng.random(PRODUCTS)}),
        "purchases": purchases,
    }
    described = {name: {"pkey": f"{name[:-1]}_id", "time_col": None, "fkeys": {}} for name in ("customers", "products")}
    described["customers"]["fkeys"] = {"brought_by": "customers"}
    keys = {"customer_id": "customers", "product_id": "products"}
    described["purchases"] = {"pkey": None, "time_col": "when", "fkeys": keys}
    about = {"name": "shop", "val_timestamp": "2024-05-01", "test_timestamp": "2024-07-01", "tables": described}
    (folder / "db").mkdir(parents=True)
    (folder / "manifest.yaml").write_bytes(msgspec.yaml.encode(about))
    for name, frame in tables.items():
        frame.to_parquet(folder / "db" / f"{name}.parquet")
    for name, task in TASKS.items():
        (folder / "tasks" / name).mkdir(parents=True)
        manifest = {"name": name, "kind": "external"} | task
        (folder / "tasks" / name / "manifest.yaml").write_bytes(msgspec.yaml.encode(manifest))
        for split, days in DAYS.items():
            times = pd.DataFrame({"timestamp": pd.to_datetime(days)})
            join = "LEFT JOIN" if name != "next" else "JOIN"
            with duckdb.connect() as connection:
                for table, frame in (tables | {"times": times}).items():
                    connection.register(table, frame)
                rows = connection.sql(
                    f"SELECT t.timestamp, c.customer_id, {SQL[name]} FROM times t CROSS JOIN customers c {join}"
                    ' purchases p ON p.customer_id = c.customer_id AND p."when" > t.timestamp AND'
                    ' p."when" <= t.timestamp + INTERVAL 30 DAY GROUP BY ALL ORDER BY 1, 2'
                ).df()
            rows.to_parquet(folder / "tasks" / name / f"{split}.parquet", index=False)
    return folder


def test_the_graph_is_that_of_relbench(relbench, shop, data, monkeypatch):
    monkeypatch.syspath_prepend(relbench)
    source = importlib.import_module("relbench.load").load_dataset(shop)
    graph, count = open_dataset(data), 0
    for name, table in source.get_db(upto_test_timestamp=False).table_dict.items():
        assert graph.node_types[name].num_nodes == len(table.df)
        times = graph.node_types[name].node_times
        assert (times is None) == (table.time_col is None)
        if times is not None:
            assert times.tolist() == table.df[table.time_col].to_numpy().astype("datetime64[s]").astype(int).tolist()
        for column, to in table.fkey_col_to_pkey_table.items():
            expected = {(row, int(key)) for row, key in enumerate(table.df[column]) if not pd.isna(key)}
            assert set(map(tuple, graph.edge_types[name, column, to].edge_index().T.tolist())) == expected
            count += len(expected)
    assert count > 2 * PURCHASES
    for name in ("churn", "spent"):
        rows = open_task(data, name).splits["test"]
        frame = source.load_task(name).get_table("test", mask_input_cols=False).df
        assert rows.nodes.tolist() == frame["customer_id"].tolist()
        assert rows.labels.tolist() == pytest.approx(frame[name].tolist())


EVALUATE = """
import json, sys
import numpy as np, pandas as pd
from relbench.load import load_dataset
from relbench.submit import evaluate_task, write_prediction_table
folder, name, table, csv = sys.argv[1:]
task = load_dataset(folder).load_task(name)
found, rows = pd.read_parquet(table), task.get_table("test").df
keys = [task.src_entity_col if name == "next" else task.entity_col, task.time_col]
assert found[keys].astype(str).equals(rows[keys].astype(str)), "the rows of the test, in their order"
column = {"next": "product_id", "churn": "p_1", "spent": "prediction"}[name]
predicted = np.stack(found[column]) if name == "next" else found[column]
write_prediction_table(task, predicted, csv)
print(json.dumps([task.evaluate(np.asarray(predicted)), evaluate_task(f"{folder}/{name}", csv)]))
"""


@pytest.fixture(scope="module")
def data(shop) -> Path:
    ran("dataset", "import", shop, shop.parent / "data", "--as-proposed")
    return shop.parent / "data"


@pytest.mark.parametrize(("name", "ours", "theirs"), [
    ("churn", "auroc", "roc_auc"), ("spent", "nmae", "nmae"), ("next", "map@4", "map"),
])  # fmt: skip
def test_metrics_are_those_of_relbench(relbench, shop, tmp_path, name, ours, theirs):
    options = ["--model", "rsage", "--fanout", "8,4", "--hidden", "16", "--epochs", "3", "--device", "cpu", "--quiet"]
    kept = ["--as-proposed", "--import-to", shop.parent / "kept"]
    ran("train", shop, *kept, "--task", name, *options, "--out", tmp_path / "run")
    assert f"{shop} was imported" in (tmp_path / "run/trainer.log").read_text()
    found = json.loads((tmp_path / "run/summary.json").read_text())["test_metrics"][ours]
    command = [sys.executable, "-c", EVALUATE, shop, name, tmp_path / "run/test.parquet", tmp_path / "predicted.csv"]
    ended = subprocess.run(command, capture_output=True, text=True, env={"PYTHONPATH": str(relbench)}, timeout=280)
    assert ended.returncode == 0, ended.stderr
    print(f"{name}: {ours} {found}, RelBench {ended.stdout.strip()}")
    for measured in json.loads(ended.stdout):
        assert measured[theirs] == pytest.approx(found, rel=1e-5)


def test_the_model_of_relbench_trains_on_batches_of_cohort(relbench, shop):
    environment = os.environ | {"PYTHONPATH": f"{os.environ['PYTHONPATH']}:{relbench}"}
    command = [sys.executable, EXAMPLES / "relbench_model.py", shop, "churn", "5"]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=280)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("validation {'roc_auc': ") == 5
    assert float(re.search(r"test: {'roc_auc': ([\d.]+)}", ended.stdout)[1]) > 0.65, ended.stdout
