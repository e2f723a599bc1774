"""How far is the mean over drawn neighbours from that over all neighbours, with layer sampling and without?

    python bench/layer_means.py DIR [DIR ...] [--fanout 10,5] [--batch-size 512] [--epochs 20] [--method labor:layers]

Every training node is a seed once in an epoch. Of each hop of the fanout, the error is |drawn - full| / |full| over all
seeds and epochs: `full` has the means of the features of all in-neighbours, and, of the second hop, the means of their
means; `drawn` the same over the drawn ones. A ratio of 1 says that layer sampling, as --method has it
(bench/layer_rows.py), is as near as drawing by node. With each is its standard error, from the epochs, each of which is
a pair of runs.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from layer_rows import draws_of
from torch import Tensor

import cohort_gnn as cohort
from cohort_gnn.base.tables import TextTable, print_tables
from cohort_gnn.spec.graph import EDGE_TYPE


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", type=Path, nargs="+", metavar="DIR")
    parser.add_argument("--fanout", default="10,5")
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--method", default="labor")
    args = parser.parse_args()
    fanout = list(map(int, args.fanout.split(",")))
    table = TextTable("Errors of means", ["graph", "hops", "neighbor", args.method, "ratio", "standard error"])
    for folder in args.datasets:
        data = cohort.dataset.open(folder)
        rows = torch.from_numpy(data.x_float32())
        edge_index = torch.from_numpy(data.edge_types[EDGE_TYPE].edge_index())
        for hops in range(1, len(fanout) + 1):
            full = means(rows, edge_index, data.num_nodes, hops)
            ways = ("neighbor", args.method)
            errors = np.array([list(errors_of(data, rows, full, way, fanout[:hops], args)) for way in ways])
            roots = np.sqrt(errors.mean(axis=1))
            ratios = np.sqrt(errors[1] / errors[0])
            spread = ratios.std(ddof=1) / np.sqrt(len(ratios))
            values = [f"{value:.4f}" for value in (*roots, roots[1] / roots[0], spread)]
            table.rows.append([folder.name, str(hops), *values])
    print_tables(table)


def means(rows: Tensor, edge_index: Tensor, num_nodes: int, hops: int) -> Tensor:
    """[num_nodes, features]: of each node the mean over its in-neighbours, so many times; 0 without in-neighbours."""
    source, target = edge_index
    count = torch.bincount(target, minlength=num_nodes).clamp(min=1).unsqueeze(1)
    for _ in range(hops):
        rows = torch.zeros(num_nodes, rows.shape[1]).index_add_(0, target, rows[source]) / count
    return rows


def errors_of(
    data: cohort.dataset.Dataset, rows: Tensor, full: Tensor, method: str, fanout: list[int], args: argparse.Namespace
) -> Iterator[float]:
    """Of each epoch: the squared distance of all seeds' means from the full ones, over the squares of the full ones."""
    seeds = torch.from_numpy(np.asarray(data.train_ids))
    norm = full[seeds].square().sum()
    how = {"batch_size": args.batch_size, "shuffle": True, "device": "cpu", **draws_of(method)}
    with cohort.NeighborLoader(data, fanout, seeds, edge_attr=False, **how) as loader:
        for _ in range(args.epochs):
            squares = torch.zeros(())
            for batch in loader:
                drawn = rows[batch.n_id]
                for hop in reversed(range(len(fanout))):  # the edges that lead to nodes of the hops before
                    num_edges = sum(batch.num_sampled_edges[: hop + 1])
                    num_targets = sum(batch.num_sampled_nodes[: hop + 1])
                    edge_index, weights = batch.edge_index[:, :num_edges], batch.get("edge_weight")
                    if weights is None:
                        drawn = means(drawn, edge_index, len(drawn), 1)[:num_targets]
                    else:  # shares of means
                        parts = drawn[edge_index[0]] * weights[:num_edges, None]
                        drawn = torch.zeros(num_targets, drawn.shape[1]).index_add_(0, edge_index[1], parts)
                squares += (drawn - full[batch.n_id[: batch.batch_size]]).square().sum()
            yield float(squares / norm)


if __name__ == "__main__":
    main()
