"""How long is an epoch of a script with PyG's own layers, by cohort.NeighborLoader and by PyG's NeighborLoader?

    python bench/loader_peers.py DIR [--workers 0,1,2] [--fanout 15,10] [--hidden 128] [--batch-size 1024] [--rounds 3]

DIR is a data set of one node type with labels. Both loaders have the training nodes as seeds, the same fanout and batch
size, on the CPU; PyG's, which needs torch-sparse or pyg-lib, with each number of workers. An epoch of loading alone
takes all batches, one of training also a step of GraphSAGE (PyG's SAGEConv, Adam) for each. All take turns; the table
has medians of the rounds, after one round that does not count. Workers of PyG stay from epoch to epoch.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader
from torch_geometric.nn import GraphSAGE

import cohort_gnn as cohort
from cohort_gnn.base.tables import TextTable, print_tables


def epoch_seconds(loader, step: Callable) -> float:
    began = time.monotonic()
    for batch in loader:
        step(batch)
    return time.monotonic() - began


def pyg_data(folder: Path) -> tuple[Data, torch.Tensor]:
    """The graph of a data set as PyG's loader has it, and the training nodes."""
    graph = cohort.dataset.open(folder)
    indptr, indices = (torch.from_numpy(array.copy()) for array in (graph.indptr, graph.indices))
    targets = torch.repeat_interleave(torch.arange(len(indptr) - 1), indptr.diff())
    labels = torch.from_numpy(graph.y.copy()).long()
    rows = torch.from_numpy(graph.x.copy())
    data = Data(x=rows, y=labels, edge_index=torch.stack([indices.long(), targets]))
    return data, torch.from_numpy(graph.train_ids.copy()).long()


def numbers(text: str) -> list[int]:
    return [int(each) for each in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--workers", type=numbers, default=[0, 1, 2])
    parser.add_argument("--fanout", type=numbers, default=[15, 10])
    for name, value in {"hidden": 128, "batch-size": 1024, "rounds": 3}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    args = parser.parse_args()
    data, seeds = pyg_data(args.data)
    how = {"batch_size": args.batch_size, "shuffle": True}
    loaders = {"cohort": cohort.NeighborLoader(args.data, args.fanout, seeds, device="cpu", **how)}
    for workers in args.workers:
        kept = {"num_workers": workers, "persistent_workers": workers > 0}
        loaders[f"PyG, {workers} workers"] = NeighborLoader(data, args.fanout, seeds, **how, **kept)
    num_classes = int(data.y.max()) + 1
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in loaders}
    for number in range(args.rounds + 1):
        for name, loader in loaders.items():
            torch.manual_seed(0)
            model = GraphSAGE(data.num_features, args.hidden, len(args.fanout), num_classes)
            optimizer = torch.optim.Adam(model.parameters())

            def step(batch, model=model, optimizer=optimizer):
                optimizer.zero_grad()
                scores = model(batch.x, batch.edge_index)[: batch.batch_size]
                torch.nn.functional.cross_entropy(scores, batch.y[: batch.batch_size]).backward()
                optimizer.step()

            seconds = epoch_seconds(loader, lambda batch: None), epoch_seconds(loader, step)
            if number:
                found[name].append(seconds)
    table = TextTable(f"{args.data}", ["loader", "loading, s", "training, s", "loading / cohort", "training / cohort"])
    medians = {name: [statistics.median(each) for each in zip(*rounds, strict=True)] for name, rounds in found.items()}
    for name, seconds in medians.items():
        ratios = [value / ours for value, ours in zip(seconds, medians["cohort"], strict=True)]
        table.rows.append([name, *(f"{value:.3f}" for value in seconds), *(f"{ratio:.2f}" for ratio in ratios)])
    print_tables(table)


if __name__ == "__main__":
    main()
