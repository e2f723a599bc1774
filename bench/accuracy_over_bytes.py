"""How much must be read from host memory for an accuracy, by the way in which batches are drawn?

    python bench/accuracy_over_bytes.py DIR [--methods neighbor,labor:layers] [--fanout 10,5] [--batch-size 8192]
        [--epochs 10] [--seeds 5] [--device cuda] [--png FILE]

As bench/layer_accuracy.py trains and tests, which says what the methods are; here tests follow every epoch. Bytes are
those of the raw rows of an epoch's batches, each batch's anew: without cache, pool and codec. A line an epoch: the mean
over the seeds of the test accuracy in %, and the bytes up to there. --png: the same as a picture.
"""

import argparse
import contextlib
import io
from pathlib import Path

import numpy as np
import torch
from layer_accuracy import Training
from layer_rows import draws_of
from trials import write_png

import cohort_gnn as cohort
from cohort_gnn.base.tables import TextTable, print_tables


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", type=Path, metavar="DIR")
    parser.add_argument("--methods", default="neighbor,labor:layers,labor:layers:importance")
    parser.add_argument("--fanout", default="10,5")
    parser.add_argument("--lr", type=float, default=0.003)
    parser.add_argument("--png", type=Path)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda" if torch.cuda.is_available() else "cpu")
    numbers = {"batch-size": 8192, "epochs": 10, "hidden": 64, "seeds": 5, "first-seed": 0, "tested": 100_000}
    for name, value in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=value, help=f"(default {value})")
    args = parser.parse_args()
    methods = args.methods.split(",")
    curves = {method: curve_of(method, args) for method in methods}
    table = TextTable("Test accuracy", ["epoch", *(f"{method}: {what}" for method in methods for what in ("%", "GB"))])
    for epoch in range(args.epochs):
        numbers = [f"{number:.2f}" for method in methods for number in curves[method][epoch]]
        table.rows.append([str(epoch + 1), *numbers])
    print_tables(table)
    if args.png:
        write_png(args.png, drawn(curves))


def curve_of(method: str, args: argparse.Namespace) -> np.ndarray:
    """[epochs, 2], the mean accuracy in % after each epoch, and the GB up to there."""
    data = cohort.dataset.open(args.dataset)
    fanout = list(map(int, args.fanout.split(",")))
    sizes = [data.feature_dim, *[args.hidden] * (len(fanout) - 1), data.num_classes]
    row_bytes = data.feature_dim * np.dtype(data.feature_dtype).itemsize
    how = {"batch_size": args.batch_size, "device": args.device, "seed": args.first_seed}
    of_seeds = []
    with contextlib.ExitStack() as stack:
        train, test = np.asarray(data.train_ids), np.asarray(data.test_ids)[: args.tested]
        loader = cohort.NeighborLoader(data, fanout, train, shuffle=True, **draws_of(method), **how)
        tested = stack.enter_context(cohort.NeighborLoader(data, fanout, test, **how))
        stack.enter_context(loader)
        for seed in range(args.first_seed, args.first_seed + args.seeds):
            training = Training(sizes, seed, args)
            rows = [(training.epoch(loader), training.accuracy(tested)) for _ in range(args.epochs)]
            needed, accuracies = np.array(rows).T
            of_seeds.append(np.stack([accuracies, needed.cumsum() * row_bytes / 1e9], axis=1))
    return np.mean(of_seeds, axis=0)


def drawn(curves: dict[str, np.ndarray]) -> bytes:
    """A PNG with a curve a method."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4), layout="constrained")
    axes = figure.subplots()
    for method, curve in curves.items():
        axes.plot(curve[:, 1], curve[:, 0], marker="o", markersize=3, label=method)
    axes.set(xlabel="GB of rows read", ylabel="test accuracy, %")
    axes.grid(alpha=0.3)
    axes.legend()
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=110, metadata={"Software": None})
    return picture.getvalue()


if __name__ == "__main__":
    main()
