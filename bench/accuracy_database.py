"""Test AUROC of R-SAGE on a generated database whose signal needs two hops and times, beside the best possible AUROC.

    PYTHONPATH=build/python python bench/accuracy_database.py [--seeds 3] [--epochs 20]

The database, another one for each seed, has shops, customers of a shop each, and complaints of customers with a day and
a weight, drawn from a normal distribution. The task: is a shop in trouble on a day? The probability of it follows from
the complaints of its customers alone, which are two hops away: of the latest 8 of each customer, those of the last 20
days count, with their weights, and all others do not. So the generator knows the best possible score of each row: this
probability. Shops have no columns, customers a constant one. Training, validation and test are consecutive times.

Rows of the table, all of ``cohort train --model rsage --temporal-strategy last``:

- R-SAGE, in time: draws in time, and the model reads how old complaints are.
- no ages: ``--time-encoding none``: draws in time alone.
- one hop: only customers are drawn.
- no times: ``--time-attr none``: draws complaints of any time, later ones included, in training and test.

Exit status 1 when the mean of "R-SAGE, in time" is more than 0.5 points below the best possible.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from accuracy import ROOT, mean_and_spread
from sklearn.metrics import roc_auc_score

import cohort_gnn as cohort

ALLOWED_LOSS_POINTS = 0.5
SHOPS, CUSTOMERS_OF_SHOP, LATEST, WINDOW = 600, 5, 8, 20
DAYS, COMPLAINTS_OF_CUSTOMER = 400, 80  # a window has 4 of a customer on average
SPANS = {"train": (40, 280, 30_000), "val": (280, 320, 4_000), "test": (320, 400, 8_000)}  # days, rows
TIME = {"time": "day", "time_unit": "days", "time_zone": "UTC"}
START = np.datetime64("2024-01-01")
COMMON = {"task": "trouble", "model": "rsage", "temporal_strategy": "last", "dropout": 0.0, "lr_schedule": "cosine"}
COMMON |= {"batch_size": 512, "hidden": 64, "lr": 0.005, "device": "cpu", "quiet": True, "fanout": [LATEST, LATEST]}
ROWS: dict[str, Mapping] = {
    "R-SAGE, in time": {},
    "no ages": {"time_encoding": "none"},
    "one hop": {"fanout": [LATEST]},
    "no times": {"time_attr": "none", "temporal_strategy": "uniform"},
}


def probabilities(shops: np.ndarray, days: np.ndarray, complaint_days: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """float64 [n], of trouble in a shop on a day.

    Args:
        complaint_days, weights: [customers, COMPLAINTS_OF_CUSTOMER], the days ascending; customer c is of shop
            c // CUSTOMERS_OF_SHOP.
    """
    sums = np.zeros(len(shops))
    for place in range(CUSTOMERS_OF_SHOP):
        customers = shops * CUSTOMERS_OF_SHOP + place
        ages = days[:, None] - complaint_days[customers]
        order_from_latest = (ages >= 0).sum(1, keepdims=True) - 1 - np.arange(COMPLAINTS_OF_CUSTOMER)
        counts = (ages >= 0) & (ages <= WINDOW) & (order_from_latest < LATEST)
        sums += (weights[customers] * counts).sum(1)
    return 1 / (1 + np.exp(-1.2 * sums / np.sqrt(CUSTOMERS_OF_SHOP)))


def write_database(folder: Path, seed: int) -> float:
    """Writes it as a data set; returns the best possible AUROC of the test's rows, in percent."""
    rng = np.random.default_rng(seed)
    num_customers = SHOPS * CUSTOMERS_OF_SHOP
    shape = num_customers, COMPLAINTS_OF_CUSTOMER
    days, weights = np.sort(rng.integers(DAYS, size=shape)), rng.standard_normal(shape)
    tables = {
        "shops": {"id": "shop", "table": pd.DataFrame({"shop": np.arange(SHOPS)})},
        "customers": {
            "id": "customer",
            "table": pd.DataFrame(
                {
                    "customer": np.arange(num_customers),
                    "shop": np.arange(num_customers) // CUSTOMERS_OF_SHOP,
                    "one": np.ones(num_customers, np.float32),
                }
            ),
            "keys": [{"column": "shop", "to": "shops"}],
            "features": ["one"],
        },
        "complaints": {
            "id": "none",
            "table": pd.DataFrame(
                {
                    "customer": np.repeat(np.arange(num_customers), COMPLAINTS_OF_CUSTOMER),
                    "day": (START + days.reshape(-1)).astype("datetime64[s]"),
                    "weight": weights.reshape(-1).astype(np.float32),
                }
            ),
            "keys": [{"column": "customer", "to": "customers"}],
            "features": ["weight"],
            **TIME,
        },
    }
    task: dict = {"nodes": "shops", "id": "shop", "label": "trouble", "metric": "auroc", **TIME}
    for split, (first, last, count) in SPANS.items():
        shops, at = rng.integers(SHOPS, size=count), rng.integers(first, last, count)
        chances = probabilities(shops, at, days, weights)
        labels = (rng.random(count) < chances).astype(np.int64)
        task[split] = pd.DataFrame({"shop": shops, "day": (START + at).astype("datetime64[s]"), "trouble": labels})
    cohort.dataset.from_tables(folder, nodes=tables, edges={}, tasks={"trouble": task}, target="shops", overwrite=True)
    return 100 * roc_auc_score(labels, chances)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--only", nargs="+", choices=ROWS, default=list(ROWS), help="rows of the table")
    args = parser.parse_args(arguments)
    scratch = ROOT / ".bench"
    scratch.mkdir(exist_ok=True)
    best, found = [], {row: [] for row in args.only}
    for seed in range(args.seeds):
        with tempfile.TemporaryDirectory(dir=scratch) as folder:
            data = Path(folder) / "database"
            best.append(write_database(data, seed))
            for row in args.only:
                options = COMMON | ROWS[row] | {"epochs": args.epochs, "seed": seed}
                summary = cohort.train(data, Path(folder) / "run", overwrite=True, **options)
                found[row].append(100 * summary["test_metrics"]["auroc"])
                print(f"seed {seed}: {row} {found[row][-1]:.2f}, best possible {best[-1]:.2f}", file=sys.stderr)
    print("| row | AUROC | below the best possible |\n|---|---|---|")
    print(f"| best possible | {mean_and_spread(best)} | |")
    lacking = {}
    for row, values in found.items():
        lacking[row] = float(np.mean(np.subtract(best, values)))
        print(f"| {row} | {mean_and_spread(values)} | {lacking[row]:.2f} |")
    return int(lacking.get("R-SAGE, in time", 0.0) > ALLOWED_LOSS_POINTS)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "2")
    sys.exit(main())
