"""What tests of `cohort train` of models that predict links share."""

import json
from pathlib import Path

import numpy as np
from processes import ran

OPTIONS = ["--device", "cpu", "--fanout", "6,6", "--batch-size", 64, "--hidden", 16, "--lr", 0.01, "--dropout", 0]
CHANCE = np.mean(1 / np.arange(1, 102))  # the MRR of random scores among 100 negatives
ALL_NEIGHBOURS = ["--epochs", 6, "--eval-fanout=-1,-1", "--negatives", 3, "--loss", "softmax"]


def train(graph: Path, out: Path, *options) -> dict:
    """The summary of a run."""
    ran("train", graph, *OPTIONS, "--quiet", "--out", out, *options)
    return json.loads((out / "summary.json").read_text())


def losses(summary: dict) -> list[float]:
    return [epoch["loss"] for epoch in summary["epochs"]]


def metrics_of(own: np.ndarray, others: np.ndarray) -> dict[str, float]:
    """Of the scores of links [n] among those of their negatives [n, K]."""
    rank = 1 + (others > own[:, None]).sum(1) + (others == own[:, None]).sum(1) / 2
    hits = {f"hits@{k}": np.mean(rank <= k) for k in (1, 10, 20, 50, 100)}
    return {"mrr": np.mean(1 / rank), **hits, "auc": np.mean(1 - (rank - 1) / others.shape[1])}
