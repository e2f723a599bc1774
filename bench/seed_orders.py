"""What do rows and accuracy become, if seeds of a batch are of few communities (--seed-order), by --seed-mix?

    python bench/seed_orders.py DIR [--mixes 0,0.25,0.5,0.75] [--seeds 6] [--epochs 15] [--nodes 60000] [--purity 0.6]

Writes a planted graph to DIR: communities of 500 nodes, 15 edges a node, 4 of 5 within its community; 10 classes. The
class of a node is that of its community with probability --purity, else any; edges prefer nodes of one class; features
tell a little of the class. So a batch of few communities has other classes than the next one, which is the worst case
for an order. For each seed, the same GraphSAGE model is trained with
each order of seeds. A line each: rows of an epoch's batches, test accuracy in %, its difference from a shuffle and that
difference's standard error.
"""

import argparse
import contextlib
import statistics
from pathlib import Path

import numpy as np
from layer_accuracy import trained

import cohort_gnn as cohort
from cohort_gnn.base.tables import TextTable, print_tables

SIZE, CLASSES, DIM = 500, 10, 32


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", type=Path, metavar="DIR")
    parser.add_argument("--mixes", default="0,0.25,0.5,0.75")
    parser.add_argument("--purity", type=float, default=0.6)
    parser.add_argument("--fanout", default="10,5")
    parser.add_argument("--lr", type=float, default=0.005)
    parser.add_argument("--device", default="cpu")
    for name, value in {"nodes": 60_000, "batch-size": 256, "epochs": 15, "hidden": 64, "seeds": 6}.items():
        parser.add_argument(f"--{name}", type=int, default=value, help=f"(default {value})")
    args = parser.parse_args()
    communities = planted(args.dataset, args.nodes, args.purity)
    data, fanout = cohort.dataset.open(args.dataset), list(map(int, args.fanout.split(",")))
    orders: dict[str, dict] = {"shuffle": {}}
    for mix in args.mixes.split(","):
        orders[f"by community, {mix} mixed"] = {"seed_order": communities, "seed_mix": float(mix)}
    how = {"batch_size": args.batch_size, "device": args.device}
    train_ids, test_ids, sizes = np.asarray(data.train_ids), np.asarray(data.test_ids), [DIM, args.hidden, CLASSES]
    found: dict[str, list[tuple[float, int]]] = {}
    for name, order in orders.items():
        with contextlib.ExitStack() as stack:
            loader = stack.enter_context(cohort.NeighborLoader(data, fanout, train_ids, shuffle=True, **order, **how))
            tested = stack.enter_context(cohort.NeighborLoader(data, fanout, test_ids, **how))
            found[name] = [trained(loader, tested, sizes, seed, args) for seed in range(args.seeds)]
    print_tables(table_of(found))


def table_of(found: dict[str, list[tuple[float, int]]]) -> TextTable:
    """A line an order."""
    table = TextTable(
        "Orders of seeds", ["order", "rows", "of a shuffle", "accuracy, %", "difference", "standard error"]
    )
    shuffled = found["shuffle"]
    for name, ones in found.items():
        accuracy, rows = (statistics.mean(values) for values in zip(*ones, strict=True))
        differences = [one[0] - other[0] for one, other in zip(ones, shuffled, strict=True)]
        spread = statistics.stdev(differences) / len(differences) ** 0.5 if len(differences) > 1 else 0.0
        share = rows / statistics.mean(rows for _, rows in shuffled)
        numbers = [f"{rows:,.0f}", f"{share:.3f}", f"{accuracy:.2f}", f"{statistics.mean(differences):+.2f}"]
        table.rows.append([name, *numbers, f"{spread:.2f}"])
    return table


def planted(folder: Path, num_nodes: int, purity: float) -> Path:
    """Writes the graph; returns the file of its communities."""
    random = np.random.default_rng(0)
    num_communities, num_edges = num_nodes // SIZE, 15 * num_nodes
    num_nodes = SIZE * num_communities
    community = random.permutation(np.repeat(np.arange(num_communities), SIZE))
    any_class = random.integers(CLASSES, size=num_nodes)
    label = np.where(random.random(num_nodes) < purity, community % CLASSES, any_class)
    members = np.argsort(community, kind="stable").reshape(num_communities, SIZE)
    target = random.integers(num_nodes, size=num_edges)
    inside = random.random(num_edges) < 0.8

    def drawn(which: np.ndarray) -> np.ndarray:
        within = members[community[target[which]], random.integers(SIZE, size=len(which))]
        return np.where(inside[which], within, random.integers(num_nodes, size=len(which)))

    source = drawn(np.arange(num_edges))
    for _ in range(2):  # half of the edges between classes are drawn again
        again = np.flatnonzero((label[source] != label[target]) & (random.random(num_edges) < 0.5))
        source[again] = drawn(again)
    x = random.normal(size=(num_nodes, DIM)).astype(np.float32)
    x[:, :CLASSES] += 0.7 * np.eye(CLASSES, dtype=np.float32)[label]
    train, val, test = np.split(random.permutation(num_nodes), [num_nodes // 5, num_nodes // 4])
    edge_index = np.stack([source, target])
    splits = {"train_ids": train, "val_ids": val, "test_ids": test}
    cohort.from_tensors(folder, x=x, y=label, edge_index=edge_index, **splits, overwrite=True)
    np.save(folder / "communities.npy", community)
    return folder / "communities.npy"


if __name__ == "__main__":
    main()
