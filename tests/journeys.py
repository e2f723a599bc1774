"""What the journeys of docs/journeys end with: metrics as scikit-learn has them, better ones than without the graph."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn import metrics

from cohort_gnn import dataset


def tested(run: Path) -> dict[str, float]:
    """The metrics of the test, of a run."""
    return json.loads((run / "summary.json").read_text())["test_metrics"]


def fraud(folder: Path) -> None:
    """Average precision with payments at least 0.3 above the one without (0.86 and 0.07 were seen)."""
    data, scores = dataset.open(folder / "data/may"), pd.read_parquet(folder / "scores.parquet")
    users = pd.read_parquet(folder / "may/users.parquet")
    assert (scores["id"] == users["user"]).all()
    y, p = users["fraud"].to_numpy()[data.test_ids] == "yes", scores["p_yes"].to_numpy()[data.test_ids]
    run, without = tested(folder / "runs/may"), tested(folder / "runs/without")
    assert run["average_precision"] == pytest.approx(metrics.average_precision_score(y, p), abs=1e-6)
    assert run["auroc"] == pytest.approx(metrics.roc_auc_score(y, p), abs=1e-6)
    assert run["average_precision"] > without["average_precision"] + 0.3
    assert users["joined"][data.train_ids].max() < users["joined"][data.test_ids].min()
    june, later = pd.read_csv(folder / "june.csv"), pd.read_parquet(folder / "june/users.parquet")
    assert (june["id"] == later["user"]).all()
    assert metrics.average_precision_score(later["fraud"] == "yes", june["p_yes"]) > 0.5
    assert (folder / "data/june/columns.json").read_bytes() == (folder / "data/may/columns.json").read_bytes()


def citations(folder: Path) -> None:
    """Accuracy with citations at least 0.05 above the one without (0.52 and 0.36 were seen)."""
    data, table = dataset.open(folder / "data/papers"), pd.read_csv(folder / "subjects.csv")
    subjects = pd.read_csv(folder / "ogbn_cora/raw/node-label.csv.gz", header=None)[0].to_numpy()
    assert np.array_equal(table["id"], np.arange(len(subjects)))
    right = metrics.accuracy_score(subjects[data.test_ids], table["prediction"].to_numpy()[data.test_ids])
    run = tested(folder / "runs/papers")["accuracy"]
    assert run == pytest.approx(right, abs=1e-6) and run > tested(folder / "runs/without")["accuracy"] + 0.05


def recommendation(folder: Path) -> None:
    """recall@20 with purchases at least 0.3 above the one without (0.73 and 0.10 were seen)."""
    table, held = pd.read_parquet(folder / "items.parquet"), dataset.held_out(folder / "data/shop-split")["test"]
    users, items = (dataset.original_ids(folder / "data/shop", name).to_numpy(False) for name in ("user", "item"))
    named = pd.DataFrame({"source": users[held.pairs[:, 0]], "target": items[held.pairs[:, 1]]}).drop_duplicates()
    found = named.merge(table, how="left", on=["source", "target"])["rank"].notna()
    recall = found.groupby(named["source"].to_numpy()).mean().mean()
    run = tested(folder / "runs/shop")["recall@20"]
    assert run == pytest.approx(recall, abs=1e-6)
    assert run > tested(folder / "runs/without")["recall@20"] + 0.3
    seen = dataset.open(folder / "data/shop-split").edge_types[("user", "buys", "item")].edge_index()
    bought = set(zip(users[seen[0]], items[seen[1]], strict=True))
    assert not bought & set(zip(table["source"], table["target"], strict=True))


AT_THE_END = {
    "docs/journeys/recommendation.md": recommendation,
    "docs/journeys/fraud.md": fraud,
    "docs/journeys/citations.md": citations,
}
