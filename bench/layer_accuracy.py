"""How accurate is a model that is trained on batches of layer sampling, beside one on batches drawn node by node?

    python bench/layer_accuracy.py DIR [--method labor:layers] [--fanout 10,5] [--batch-size 8192] [--epochs 5]
        [--seeds 20] [--device cuda]

For each seed, from --first-seed on, the same GraphSAGE model is trained twice, for as many epochs and in the same order
of training nodes, which is another one for the next seed. Both are tested alike, on --tested test nodes with batches
drawn node by node. A line each: test accuracy in %, and the rows that the batches of an epoch need; at last the mean of
the differences and its standard error. --method: see bench/layer_rows.py. "alone": the accuracy of a model of the same
size without neighbours.
"""

import argparse
import contextlib
import statistics
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from layer_rows import draws_of
from torch import Tensor, nn

import cohort_gnn as cohort
from cohort_gnn.base.tables import TextTable, print_tables


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", type=Path, metavar="DIR")
    parser.add_argument("--fanout", default="10,5")
    parser.add_argument("--method", default="labor")
    parser.add_argument("--lr", type=float, default=0.003)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda" if torch.cuda.is_available() else "cpu")
    numbers = {"batch-size": 8192, "epochs": 5, "hidden": 64, "seeds": 20, "first-seed": 0, "tested": 100_000}
    for name, value in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=value, help=f"(default {value})")
    args = parser.parse_args()
    data = cohort.dataset.open(args.dataset)
    fanout = list(map(int, args.fanout.split(",")))
    sizes = [data.feature_dim, *[args.hidden] * (len(fanout) - 1), data.num_classes]
    how = {"batch_size": args.batch_size, "device": args.device, "seed": args.first_seed}
    train_ids, test_ids = np.asarray(data.train_ids), np.asarray(data.test_ids)[: args.tested]
    columns = ["seed", "neighbor, %", f"{args.method}, %", "difference"]
    columns += ["rows of an epoch: neighbor", args.method]
    table, differences = TextTable("Test accuracy", columns), []
    with contextlib.ExitStack() as stack:
        ways = [
            stack.enter_context(cohort.NeighborLoader(data, fanout, train_ids, shuffle=True, **draws_of(method), **how))
            for method in ("neighbor", args.method)
        ]
        tested = stack.enter_context(cohort.NeighborLoader(data, fanout, test_ids, **how))
        for seed in range(args.first_seed, args.first_seed + args.seeds):
            (one, rows), (other, fewer) = (trained(loader, tested, sizes, seed, args) for loader in ways)
            differences.append(other - one)
            numbers = [f"{one:.2f}", f"{other:.2f}", f"{other - one:+.2f}", f"{rows:,}", f"{fewer:,}"]
            table.rows.append([str(seed), *numbers])
        alone = trained(ways[0], tested, sizes, args.first_seed, args, alone=True)[0]
    print_tables(table)
    spread = statistics.stdev(differences) / len(differences) ** 0.5 if len(differences) > 1 else 0.0
    mean = f"{statistics.mean(differences):+.3f}, standard error {spread:.3f}"
    print(f"{args.method} less neighbor: {mean}; alone: {alone:.2f} %")


class Sage(nn.Module):
    """GraphSAGE, trimmed hop by hop."""

    def __init__(self, sizes: list[int]):
        super().__init__()
        pairs = list(zip(sizes, sizes[1:], strict=False))
        self.convs = nn.ModuleList([cohort.nn.SAGEConv(*pair) for pair in pairs])

    def forward(self, batch, alone: bool) -> Tensor:
        x, hops = batch.x.float(), len(self.convs)
        for layer, conv in enumerate(self.convs):
            num_edges = 0 if alone else sum(batch.num_sampled_edges[: hops - layer])
            num_targets = sum(batch.num_sampled_nodes[: hops - layer])
            weights = batch.get("edge_weight")
            shares = {} if weights is None else {"edge_weight": weights[:num_edges]}
            x = conv((x, x[:num_targets]), batch.edge_index[:, :num_edges], **shares)
            x = x if layer + 1 == hops else x.relu()
        return x


class Training:
    """Of a model with weights from a seed, whose rows have neighbours unless it is `alone`."""

    def __init__(self, sizes: list[int], seed: int, args: argparse.Namespace, alone: bool = False):
        torch.manual_seed(seed)
        self.model, self._alone = Sage(sizes).to(args.device), alone
        self._optimizer = torch.optim.Adam(self.model.parameters(), lr=args.lr)

    def epoch(self, loader: cohort.NeighborLoader) -> int:
        """Trains on all batches; returns the rows that they needed."""
        rows = 0
        for batch in loader:
            self._optimizer.zero_grad()
            F.cross_entropy(self.model(batch, self._alone), batch.y[: batch.batch_size].long()).backward()
            self._optimizer.step()
            rows += batch.num_nodes
        return rows

    @torch.no_grad()
    def accuracy(self, tested: cohort.NeighborLoader) -> float:
        """In %, of the batches' seeds."""
        right = total = 0
        for batch in tested:
            right += int((self.model(batch, self._alone).argmax(dim=1) == batch.y[: batch.batch_size]).sum())
            total += batch.batch_size
        return 100 * right / total


def trained(
    loader: cohort.NeighborLoader,
    tested: cohort.NeighborLoader,
    sizes: list[int],
    seed: int,
    args: argparse.Namespace,
    alone: bool = False,
) -> tuple[float, int]:
    """Test accuracy in %, and the rows that the last epoch's batches needed."""
    training, rows = Training(sizes, seed, args, alone), 0
    for _ in range(args.epochs):
        rows = training.epoch(loader)
    return training.accuracy(tested), rows


if __name__ == "__main__":
    main()
