"""Link prediction, sampled by `cohort train --task link`, beside PyG's full-graph training.

    PYTHONPATH=build/python python bench/accuracy_links.py --data ../shared/data [--only cora,citeseer] [--seeds 5]
        [--device cuda] [--jobs 8]

All sides have the same held-out links with the same negatives (`cohort dataset split-links`), two SAGE layers, the dot
product as score, binary cross entropy with one random negative per edge, batches of equally many pairs, and Adam. The
reference is PyG alone: each step takes the whole graph without the pairs of its batch and their reverses, which Cohort
excludes, too. All report the test links' MRR and AUC (the mean share of a link's negatives that score lower) at the
best validation MRR, in percent.

`cohort train` and the reference draw pairs, negatives and weights of their own. A script with
`cohort.LinkNeighborLoader` is compared, too, with a reference that has its weights and replays its pairs and negatives.
For each data set, rows of a batch with all neighbours are compared with the reference's. The test MRR of single seeds
varies by more than a point: round-off alone, in another order of sums, changes it by as much. Exit status 1 when a mean
is more than 0.5 points below the reference's by two standard errors, or rows differ by more than 1e-5.
"""

import argparse
import json
import math
import multiprocessing
import statistics
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from accuracy import ROOT, SIDES, WORDS, mean_and_spread, run_cohort
from torch import Tensor, nn
from torch_geometric.nn import SAGEConv
from torch_geometric.sampler import NegativeSampling

import cohort_gnn as cohort

ALLOWED_LOSS_POINTS, ALLOWED_DIFFERENCE = 0.5, 1e-5
FEATURES = {"cora": WORDS, "citeseer": WORDS}
HIDDEN, FANOUT = 128, "25,10"
REPLAYED = ("reference, replayed", "loader")
ROWS = {"cohort train": SIDES, "script with a loader": REPLAYED}


class Metrics(NamedTuple):
    """Of the test links, each in [0, 1]."""

    mrr: float
    auc: float


class Reference(nn.Module):
    """Two layers of PyG's SAGEConv."""

    def __init__(self, num_features: int, hidden: int = HIDDEN):
        super().__init__()
        self.first, self.second = SAGEConv(num_features, hidden), SAGEConv(hidden, hidden)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """float32 [V, hidden]"""
        return self.second(self.first(x, edge_index).relu(), edge_index)


def metrics(rows: Tensor, links: cohort.dataset.HeldOut) -> Metrics:
    """Mean reciprocal rank of links, each among its negatives (a tie counts half), and the share of the negatives that
    score lower."""
    source, target = torch.from_numpy(links.pairs.copy()).to(rows.device).T
    others = torch.from_numpy(links.negatives.copy()).to(rows.device)
    own = (rows[source] * rows[target]).sum(1, keepdim=True)
    scores = torch.cat(
        [
            torch.einsum("nd,nkd->nk", rows[part], rows[each])
            for part, each in zip(source.split(256), others.split(256), strict=True)
        ]
    )
    rank = 1 + (scores > own).sum(1) + (scores == own).sum(1) / 2
    return Metrics((1 / rank).mean().item(), (1 - (rank - 1) / scores.shape[1]).mean().item())


Batches = list[tuple[Tensor, Tensor, Tensor]]  # of an epoch: int64 [pairs] sources, targets, other targets


def by_reference(folder: Path, seed: int, args: argparse.Namespace, epochs: list[Batches] | None = None) -> Metrics:
    """When every step sees the whole graph, except the edges that it has to predict.

    Args:
        epochs: the batches; None: the reference draws its own.
    """
    data = cohort.dataset.open(folder).to_pyg().to(args.device)
    names = data.edge_index[0] * data.num_nodes + data.edge_index[1]

    def batches(epoch: int) -> Batches:
        if epochs is not None:
            return epochs[epoch]
        parts = torch.randperm(data.num_edges, device=args.device).split(args.batch_size)
        return [
            (*data.edge_index[:, part], torch.randint(data.num_nodes, (len(part),), device=args.device))
            for part in parts
        ]

    def scores(model: Reference, epoch: int):
        for source, target, other in batches(epoch):
            predicted = torch.cat([source * data.num_nodes + target, target * data.num_nodes + source])
            rows = model(data.x, data.edge_index[:, ~torch.isin(names, predicted)])
            yield (rows[source] * rows[target]).sum(1), (rows[source] * rows[other]).sum(1)

    return trained(folder, seed, args, scores)


def loader_of(folder: Path, seed: int, args: argparse.Namespace, fanout: str) -> cohort.LinkNeighborLoader:
    """A loader of all edges, each with one random negative."""
    options = {"batch_size": args.batch_size, "shuffle": True, "seed": seed, "device": args.device}
    hops = [int(each) for each in fanout.split(",")]
    return cohort.LinkNeighborLoader(folder, hops, neg_sampling=NegativeSampling("triplet"), **options)


def by_loader(folder: Path, seed: int, args: argparse.Namespace) -> tuple[Metrics, list[Batches]]:
    """Of a script with a loader, and its batches."""
    epochs: list[Batches] = []
    with loader_of(folder, seed, args, FANOUT) as loader:

        def scores(model: Reference, _epoch: int):
            epochs.append([])
            for batch in loader:
                roots = batch.src_index, batch.dst_pos_index, batch.dst_neg_index
                epochs[-1].append(tuple(batch.n_id[each] for each in roots))
                rows = model(batch.x, batch.edge_index)
                source, target, other = (rows[each] for each in roots)
                yield (source * target).sum(1), (source * other).sum(1)

        return trained(folder, seed, args, scores), epochs


def trained(folder: Path, seed: int, args: argparse.Namespace, scores: Callable) -> Metrics:
    """Of a model that learns from scores(model, epoch): of each batch's pairs, and of their negatives."""
    data, held_out = cohort.dataset.open(folder).to_pyg().to(args.device), cohort.dataset.held_out(folder)
    torch.manual_seed(seed)
    model = Reference(data.x.shape[1]).to(args.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    best, best_test = -1.0, Metrics(0, 0)
    for epoch in range(args.epochs):
        for own, others in scores(model, epoch):
            wanted = torch.cat([torch.ones_like(own), torch.zeros_like(others)]).detach()
            optimizer.zero_grad()
            F.binary_cross_entropy_with_logits(torch.cat([own, others]), wanted).backward()
            optimizer.step()
        with torch.no_grad():
            rows = model(data.x, data.edge_index)
        if (value := metrics(rows, held_out["val"]).mrr) > best:
            best, best_test = value, metrics(rows, held_out["test"])
    return best_test


def largest_difference(folder: Path, args: argparse.Namespace) -> float:
    """Between the rows of a batch's nodes with all neighbours, and those of the whole graph without its pairs."""
    data = cohort.dataset.open(folder).to_pyg().to(args.device)
    names = data.edge_index[0] * data.num_nodes + data.edge_index[1]
    model = Reference(data.x.shape[1]).to(args.device)
    with torch.no_grad(), loader_of(folder, 0, args, "-1,-1") as loader:
        batch = next(iter(loader))
        roots = torch.cat([batch.src_index, batch.dst_pos_index, batch.dst_neg_index])
        source, target = batch.n_id[batch.src_index], batch.n_id[batch.dst_pos_index]
        predicted = torch.cat([source * data.num_nodes + target, target * data.num_nodes + source])
        expected = model(data.x, data.edge_index[:, ~torch.isin(names, predicted)])
        return (model(batch.x, batch.edge_index)[roots] - expected[batch.n_id[roots]]).abs().max().item()


def by_cohort(folder: Path, seed: int, args: argparse.Namespace) -> Metrics:
    """Of `cohort train`; its run gets a folder of its own in args.out."""
    run = Path(tempfile.mkdtemp(prefix=f"{folder.name}-", dir=args.out))
    words = f"--fanout {FANOUT} --eval-fanout=-1,-1 --batch-size {args.batch_size} --hidden {HIDDEN} --dropout 0"
    words += f" --epochs {args.epochs} --lr {args.lr} --device {args.device} --seed {seed} --quiet"
    run_cohort(["train", str(folder), *words.split(), "--out", str(run)])
    found = json.loads((run / "summary.json").read_text())["test_metrics"]
    return Metrics(found["mrr"], found["auc"])


def measure(name: str, seed: int, args: argparse.Namespace) -> dict[str, Metrics]:
    """Of each side."""
    folder = args.out / f"{name}-{seed}"
    if not folder.exists():
        with tempfile.TemporaryDirectory(dir=args.out) as scratch:
            whole = Path(scratch) / "whole"
            run_cohort(
                ["dataset", "import", str(args.data / f"{name}.npz"), str(whole), "--undirected", *FEATURES[name]]
            )
            run_cohort(["dataset", "split-links", str(whole), str(folder), "--shares", "0.05,0.1", "--seed", str(seed)])
    loader, epochs = by_loader(folder, seed, args)
    sides = [by_reference(folder, seed, args), by_cohort(folder, seed, args)]
    sides += [by_reference(folder, seed, args, epochs), loader]
    found = dict(zip((*SIDES, *REPLAYED), sides, strict=True))
    told = ", ".join(f"{side} {100 * each.mrr:.2f} {100 * each.auc:.2f}" for side, each in found.items())
    print(f"{name} seed {seed}: {told}", flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=ROOT / "../shared/data", help="folder of the .npz files")
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(FEATURES), help="names, with commas")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1, help="seeds at a time")
    parser.add_argument("--out", type=Path, default=ROOT / ".bench/accuracy_links", help="imported data and runs")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(args.jobs, multiprocessing.get_context("spawn")) as pool:
        jobs = {name: [pool.submit(measure, name, seed, args) for seed in range(args.seeds)] for name in args.only}
        measured = {name: [job.result() for job in each] for name, each in jobs.items()}
    print("| data set | row | metric | PyG, full graph | measured | difference | standard error |")
    print("|---|---|---|---|---|---|---|")
    is_worse = False
    for name, seeds in measured.items():
        for (row, sides), metric in product(ROWS.items(), Metrics._fields):
            reference, ours = ([100 * getattr(seed[side], metric) for seed in seeds] for side in sides)
            differences = [there - here for here, there in zip(reference, ours, strict=True)]
            error = statistics.stdev(differences) / math.sqrt(len(ours)) if len(ours) > 1 else math.nan
            mean = statistics.mean(differences)
            told = f"{mean_and_spread(reference)} | {mean_and_spread(ours)} | {mean:+.2f} | {error:.2f}"
            print(f"| {name} | {row} | {metric} | {told} |")
            is_worse |= mean + 2 * error < -ALLOWED_LOSS_POINTS
    differences = {name: largest_difference(args.out / f"{name}-0", args) for name in args.only}
    print("largest difference of a row's element, all neighbours:", differences)
    return int(is_worse or max(differences.values()) > ALLOWED_DIFFERENCE)


if __name__ == "__main__":
    sys.exit(main())
