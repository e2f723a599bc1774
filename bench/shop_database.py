"""A database of seven tables with times, of any size, as Parquet files: what temporal loaders are compared on.

    python bench/shop_database.py FOLDER [--rows 2000000] [--seed 0]

Users place orders in shops; an order has lines, each of an item; users also review and visit items. Rows are shared out
as in SHARES. A user's and an item's popularity is skewed (the square of a uniform number), and events come over 1,000
days. The task has as many rows (user, time, label) as there are users, at most 200,000, in the last half of the time:
the first 90 % are for training, then come validation and test, each in a file (`task-train.parquet` ...). FOLDER has a
description for `cohort dataset import`, too (`graph.yaml`).
"""

import argparse
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SHARES = {"users": 0.05, "items": 0.02, "shops": 0.001, "orders": 0.2, "lines": 0.4, "reviews": 0.1, "visits": 0.229}
KEYS = {
    "orders": {"user_id": "users", "shop_id": "shops"},
    "lines": {"order_id": "orders", "item_id": "items"},
    "reviews": {"user_id": "users", "item_id": "items"},
    "visits": {"user_id": "users", "item_id": "items"},
}
IDS = {"users": "user_id", "items": "item_id", "shops": "shop_id", "orders": "order_id"}
FEATURES = {
    "users": ["age", "height", "income"],
    "items": ["price", "weight"],
    "shops": ["area"],
    "orders": ["amount", "discount"],
    "lines": ["quantity", "price"],
    "reviews": ["stars", "length"],
    "visits": ["seconds", "clicks"],
}
START, DAYS, SECONDS_A_DAY = np.datetime64("2020-01-01", "s"), 1000, 86_400
SEEDS_AT_MOST = 200_000
SPLITS = ("train", "val", "test")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    write(args.folder, args.rows, args.seed)


def write(folder: Path, rows: int, seed: int = 0) -> None:
    """The tables, the task and the description."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(seed)
    counts = {name: max(int(share * rows), 10) for name, share in SHARES.items()}
    order_times = np.empty(0, np.int64)
    for name, count in counts.items():
        columns: dict = {IDS[name]: np.arange(count)} if name in IDS else {}
        for key, other in KEYS.get(name, {}).items():
            columns[key] = (random.random(count) ** 2 * counts[other]).astype(np.int64)
        times = random.integers(DAYS * SECONDS_A_DAY, size=count)
        if name == "orders":
            order_times = times
        if name == "lines":
            times = order_times[columns["order_id"]]
        if name in ("users", "items"):
            times //= 10
        if name != "shops":
            columns["at"] = START + times
        columns |= {each: random.standard_normal(count).astype(np.float32) for each in FEATURES[name]}
        pq.write_table(pa.table(columns), folder / f"{name}.parquet")
    count = min(counts["users"], SEEDS_AT_MOST)
    times = np.sort(random.integers(DAYS * SECONDS_A_DAY // 2, DAYS * SECONDS_A_DAY, count))
    task = pa.table(
        {
            "user_id": random.integers(counts["users"], size=count),
            "at": START + times,
            "label": random.integers(2, size=count),
        }
    )
    ends = [0, *np.searchsorted(times, times[[count * 9 // 10, count * 19 // 20]]).tolist(), count]
    for split, first, last in zip(SPLITS, ends, ends[1:], strict=False):
        pq.write_table(task.slice(first, last - first), folder / f"task-{split}.parquet")
    (folder / "graph.yaml").write_text("\n".join(description()) + "\n")


def description() -> list[str]:
    """The lines of graph.yaml."""
    lines = ["nodes:"]
    for name, features in FEATURES.items():
        lines += [f"  {name}:", f"    file: {name}.parquet", f"    id: {IDS.get(name, 'none')}"]
        if name in KEYS:
            lines += ["    keys:", *(f"      - {{column: {key}, to: {to}}}" for key, to in KEYS[name].items())]
        if name != "shops":
            lines += ["    time: at", "    time_unit: s", "    time_zone: UTC"]
        lines.append(f"    features: [{', '.join(features)}]")
    lines += ["tasks:", "  churn:", "    nodes: users", *(f"    {split}: task-{split}.parquet" for split in SPLITS)]
    return [*lines, "    id: user_id", "    time: at", "    time_unit: s", "    time_zone: UTC", "    label: label"]


if __name__ == "__main__":
    main()
