"""What does a training step of a script's own model take with PyG's layers, and after ``cohort.nn.accelerate``?

    python bench/layer_steps.py DIR (or --shape products) [--layers gatv2,gine] [--device cuda] [--fanout 25,10]
        [--batch-size 8192] [--hidden 256] [--heads 4] [--batches 4] [--steps 20] [--amp] [--out layer-steps.jsonl]

A step is forward, loss, backward and Adam of a model of two layers, eagerly and by hops: a layer gets the edges and
nodes that the next one needs. The batches are drawn beforehand and taken in turn; edges have --edge-dim random features
or one of --relations random types. The two models begin with the same weights, on the same batches. A line each: the
median of the steps, the time that the host needs to start one, peak memory beside batches, model and optimizer, the
difference of the first losses, and how many times faster and smaller Cohort's step is. Lines are appended to --out.
"""

import argparse
import copy
import itertools
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from shapes import add_data_or_shape, resolve_data
from torch import Tensor, nn

import cohort_gnn as cohort
from cohort_gnn.base.tables import TextTable, print_tables
from cohort_gnn.trainer.offsets import keep_offsets

WARM_UP_STEPS = 4


def mlp(width: int, out: int) -> nn.Module:
    """What GIN applies to sums."""
    return nn.Sequential(nn.Linear(width, out), nn.ReLU(), nn.Linear(out, out))


# layer(width, out, args, is_last): PyG's layer; and what it takes beside x and edge_index.
Make = Callable[[int, int, argparse.Namespace, bool], nn.Module]


def by_heads(kind: type, **options) -> Make:
    """Layers of attention: heads beside each other, of the last layer averaged."""

    def make(width: int, out: int, args: argparse.Namespace, is_last: bool) -> nn.Module:
        options_now = {name: getattr(args, value) for name, value in options.items()}
        return kind(width, out if is_last else out // args.heads, heads=args.heads, concat=not is_last, **options_now)

    return make


LAYERS: dict[str, tuple[Make, str]] = {
    "gatv2": (by_heads(pyg.GATv2Conv), ""),
    "gatv2-edges": (by_heads(pyg.GATv2Conv, edge_dim="edge_dim"), "edge_attr"),
    "transformer": (by_heads(pyg.TransformerConv), ""),
    "transformer-edges": (by_heads(pyg.TransformerConv, edge_dim="edge_dim"), "edge_attr"),
    "gin": (lambda width, out, args, _: pyg.GINConv(mlp(width, out)), ""),
    "gine": (lambda width, out, args, _: pyg.GINEConv(mlp(width, out), edge_dim=args.edge_dim), "edge_attr"),
    "rgcn": (lambda width, out, args, _: pyg.RGCNConv(width, out, args.relations), "edge_type"),
    "rgat": (
        lambda width, out, args, is_last: pyg.RGATConv(
            width, out if is_last else out // args.heads, args.relations, heads=args.heads, concat=not is_last
        ),
        "edge_type",
    ),
    "sage-max": (lambda width, out, args, _: pyg.SAGEConv(width, out, aggr="max"), ""),
}


class Model(nn.Module):
    """Two layers by hops."""

    def __init__(self, kind: str, sizes: tuple[int, int, int], args: argparse.Namespace):
        super().__init__()
        make, self.takes = LAYERS[kind]
        width, hidden, out = sizes
        self.convs = nn.ModuleList([make(width, hidden, args, False), make(hidden, out, args, True)])

    def forward(self, batch: "Batch") -> Tensor:
        x = batch.x
        for layer, conv in enumerate(self.convs):
            hops = len(self.convs) - layer
            num_edges, num_targets = sum(batch.edges[:hops]), sum(batch.nodes[:hops])
            values = [batch.of_edges[self.takes][:num_edges]] if self.takes else []
            x = conv((x, x[:num_targets]), batch.edge_index[:, :num_edges], *values)
            x = x if hops == 1 else x.relu()
        return x


class Batch:
    """A batch on the device, with random values of its edges."""

    def __init__(self, batch, args: argparse.Namespace):
        moved = batch.clone().to(args.device)
        self.x, self.y = moved.x.float(), moved.y[: batch.batch_size].long()
        self.edge_index = keep_offsets(moved.edge_index, moved.indptr)  # as a loader's batch on this device has them
        self.nodes, self.edges = batch.num_sampled_nodes, batch.num_sampled_edges
        num_edges, generator = self.edge_index.shape[1], torch.Generator().manual_seed(len(self.y))
        types = torch.randint(args.relations, (num_edges,), generator=generator).to(args.device)
        features = torch.randn(num_edges, args.edge_dim, generator=generator).to(args.device)
        self.of_edges = {"edge_attr": features, "edge_type": types}


def measured(model: Model, batches: list[Batch], args: argparse.Namespace) -> dict:
    """The figures of steps of a model."""
    optimizer, on_gpu = torch.optim.Adam(model.parameters(), lr=0.003), args.device == "cuda"

    def step(batch: Batch) -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(args.device, torch.bfloat16, enabled=args.amp):
            loss = F.cross_entropy(model(batch).float(), batch.y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    def wait() -> float:
        if on_gpu:
            torch.cuda.synchronize()
        return time.perf_counter()

    first_loss = step(batches[0]).item()
    before, peak = 0, None
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    for batch in itertools.islice(itertools.cycle(batches), max(WARM_UP_STEPS, len(batches))):
        step(batch)
    if on_gpu:
        peak = torch.cuda.max_memory_allocated() - before
    times, host_times = [], []
    for batch in itertools.islice(itertools.cycle(batches), args.steps):
        begin = wait()
        step(batch)
        host_times.append(1e3 * (time.perf_counter() - begin))
        times.append(1e3 * (wait() - begin))
    return {
        "ms": statistics.median(times),
        "least_ms": min(times),
        "host_ms": statistics.median(host_times),
        "peak_bytes": peak,
        "first_loss": first_loss,
    }


def lines_of(kind: str, sizes: tuple[int, int, int], batches: list[Batch], args: argparse.Namespace) -> list[dict]:
    """Figures of PyG's model and of the accelerated one; an implementation that runs out of memory has none."""
    torch.manual_seed(0)
    theirs = Model(kind, sizes, args).to(args.device)
    ours = copy.deepcopy(theirs)
    done = cohort.nn.accelerate(ours)
    if done.left:
        raise SystemExit(str(done))
    lines = []
    for library, model in (("pyg", theirs), ("cohort", ours)):
        line = {"bench": "layer_steps", "layer": kind, "library": library, "amp": args.amp}
        try:
            lines.append(line | measured(model, batches, args))
        except torch.OutOfMemoryError as error:
            print(f"{kind}, {library}: {error}", flush=True)
        if args.device == "cuda":
            torch.cuda.empty_cache()
    return lines


def table_of(lines: list[dict]) -> TextTable:
    """A row a line."""
    columns = ["layer", "library", "ms", "least ms", "host ms", "peak MB", "first loss", "speed", "memory"]
    table = TextTable("steps", columns, note="speed, memory: against PyG")
    bases = {line["layer"]: line for line in lines if line["library"] == "pyg"}
    for line in lines:
        base, peak = bases.get(line["layer"]), line["peak_bytes"]
        speed = f"{base['ms'] / line['ms']:.2f}" if base else "-"
        share = f"{peak / base['peak_bytes']:.2f}" if base and peak else "-"
        numbers = [f"{line[name]:.3f}" for name in ("ms", "least_ms", "host_ms")]
        peak = "-" if peak is None else f"{peak / 1e6:.0f}"
        table.rows.append([line["layer"], line["library"], *numbers, peak, f"{line['first_loss']:.6f}", speed, share])
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data_or_shape(parser)
    parser.add_argument("--layers", default=",".join(LAYERS))
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--fanout", default="25,10")
    numbers = {"batch-size": 8192, "hidden": 256, "heads": 4, "batches": 4, "steps": 20, "edge-dim": 16, "relations": 4}
    for name, value in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=value, help=f"(default {value})")
    parser.add_argument("--amp", action="store_true", help="autocast to bfloat16")
    parser.add_argument("--out", type=Path, default=Path("layer-steps.jsonl"))
    args = parser.parse_args()
    data = cohort.dataset.open(resolve_data(args)[0])
    fanout = [int(number) for number in args.fanout.split(",")]
    with cohort.NeighborLoader(
        data, fanout, data.train_ids, batch_size=args.batch_size, shuffle=True, device="cpu", seed=0
    ) as loader:
        batches = [Batch(batch, args) for batch in itertools.islice(loader, args.batches)]
    size = f"{batches[0].edge_index.shape[1]:,} edges, {len(batches[0].x):,} nodes, {len(batches[0].y):,} seeds"
    print(f"{torch.cuda.get_device_name() if args.device == 'cuda' else 'cpu'}: {size}", flush=True)
    sizes, lines = (data.feature_dim, args.hidden, data.num_classes), []
    for kind in args.layers.split(","):
        found = lines_of(kind, sizes, batches, args)
        with args.out.open("a") as out:
            out.writelines(json.dumps(line) + "\n" for line in found)
        lines += found
        print_tables(table_of(found))
    print_tables(table_of(lines))


if __name__ == "__main__":
    main()
