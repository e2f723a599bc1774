"""How long loaders of links, weights and times take for a batch, beside a loader of nodes, on a random graph.

    python bench/loader_costs.py [--nodes 2400000] [--edges 60000000] [--dim 100] [--pyg] [--device cuda]

Every line is the median of --rounds rounds, in which all loaders take turns, so that a slow moment of the machine hits
all of them. The loaders of nodes take as many distinct seeds as a batch of links has. Weights are uniform in (0, 1);
times are those of a stream in which the edges come in random order, and the seeds are in its last tenth.
--pyg: PyG's LinkNeighborLoader as well, with --workers processes (torch-sparse or pyg-lib must be installed).
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

import torch

import cohort_gnn as cohort


def seconds_of(batches: Iterable, num_batches: int, warm_up: int, device: str) -> float:
    """Seconds a batch takes, over `num_batches` batches after `warm_up` others."""
    start = 0.0
    for number, batch in enumerate(islice(batches, warm_up + num_batches)):
        batch.x.sum()  # the batch has arrived
        if device == "cuda":
            torch.cuda.synchronize()
        if number + 1 == warm_up:
            start = time.perf_counter()
    return (time.perf_counter() - start) / num_batches


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    numbers = {"nodes": 2_400_000, "edges": 60_000_000, "dim": 100, "pairs": 4096, "batches": 30, "rounds": 5}
    for name, value in {**numbers, "warm-up": 5, "workers": 16}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--fanout", default="25,10", type=lambda text: [int(each) for each in text.split(",")])
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--pyg", action="store_true")
    return parser.parse_args()


def main() -> None:
    args = parse()
    generator = torch.Generator().manual_seed(0)
    source = (torch.rand(args.edges, generator=generator) ** 2 * args.nodes).long()
    target = torch.randint(args.nodes, (args.edges,), generator=generator)
    graph = {"x": torch.randn(args.nodes, args.dim, generator=generator), "edge_index": torch.stack([source, target])}
    times = torch.randperm(args.edges, generator=generator)
    seeds = torch.randperm(args.nodes, generator=generator)
    wanted = args.batches + args.warm_up
    pairs = graph["edge_index"][:, torch.randperm(args.edges, generator=generator)[: wanted * args.pairs]]
    how = {"shuffle": True, "device": args.device}
    with tempfile.TemporaryDirectory() as folder:
        plain = cohort.from_tensors(Path(folder) / "plain", **graph)
        weighted = cohort.from_tensors(
            Path(folder) / "weighted", **graph, edge_weight=torch.rand(args.edges, generator=generator)
        )
        stream = cohort.from_tensors(Path(folder) / "stream", **graph, edge_time=times)

        links = cohort.LinkNeighborLoader(
            plain, args.fanout, pairs, neg_sampling="binary", batch_size=args.pairs, **how
        )
        first = next(iter(links))
        num_seeds = len(first.edge_label_index.unique())
        seeds = seeds[: wanted * num_seeds]
        now = torch.randint(args.edges * 9 // 10, args.edges, (len(seeds),), generator=generator)
        nodes = {"batch_size": num_seeds, **how}
        timed = {"input_time": now, "time_attr": "edge_time"}
        loaders: dict[str, Iterable] = {
            "nodes": cohort.NeighborLoader(plain, args.fanout, seeds, **nodes),
            "links": links,
            "by weight": cohort.NeighborLoader(weighted, args.fanout, seeds, weight_attr="edge_weight", **nodes),
            "disjoint": cohort.NeighborLoader(plain, args.fanout, seeds, disjoint=True, **nodes),
            "by time": cohort.NeighborLoader(stream, args.fanout, seeds, **timed, **nodes),
            "by time, last": cohort.NeighborLoader(
                stream, args.fanout, seeds, temporal_strategy="last", **timed, **nodes
            ),
            "by time, window": cohort.NeighborLoader(
                stream, args.fanout, seeds, time_window=args.edges, **timed, **nodes
            ),
        }
        if args.pyg:
            loaders["PyG, links"] = _pyg_links(graph, pairs, args)
        print(f"{args.pairs} pairs and as many negatives: {num_seeds} distinct seeds; fanout {args.fanout}", flush=True)
        taken: dict[str, list[float]] = {name: [] for name in loaders}
        for _ in range(args.rounds):
            for name, loader in loaders.items():
                share = 3 if name == "PyG, links" else 1  # whose batches take long
                taken[name].append(
                    seconds_of(loader, args.batches // share, max(args.warm_up // share, 1), args.device)
                )
        median = {name: statistics.median(seconds) for name, seconds in taken.items()}
        beside = {"by time, window": "by time", "by time, last": "by time", "by time": "disjoint"}
        for name, seconds in median.items():
            other = beside.get(name, "nodes")
            print(f"{name:15} {seconds * 1e3:8.2f} ms a batch, {seconds / median[other]:6.2f} x {other}", flush=True)
        for loader in loaders.values():
            if hasattr(loader, "close"):
                loader.close()


def _pyg_links(graph: dict, pairs: torch.Tensor, args: argparse.Namespace) -> Iterable:
    from torch_geometric.data import Data
    from torch_geometric.loader import LinkNeighborLoader

    class OnDevice:
        """PyG's batches, copied to the device."""

        def __init__(self):
            self.loader = LinkNeighborLoader(
                Data(**graph),
                args.fanout,
                pairs,
                neg_sampling="binary",
                batch_size=args.pairs,
                shuffle=True,
                num_workers=args.workers,
                pin_memory=args.device == "cuda",
            )

        def __iter__(self):
            return (batch.to(args.device, non_blocking=True) for batch in self.loader)

    return OnDevice()


if __name__ == "__main__":
    main()
