"""Test accuracy of sampled two-process training beside full-graph training by PyG alone.

    PYTHONPATH=build/python python bench/accuracy.py --data ../shared/data [--only cora,citeseer] [--seeds 10] [--amp]

For each data set and seed: `cohort dataset import` with a split of that seed; the reference, which is the same model
class on the whole graph in one batch without Cohort's sampler, buffer or training loop; and `cohort train` in two
processes with neighbour sampling. Both sides take the recipe's model, optimizer and split, and the test accuracy at
their best validation epoch. Exit status 1 when a data set's mean is more than 1 point below the reference's.

Results are kept as JSON lines in OUT/results.jsonl: a run that was broken off goes on where it stopped, and a recipe
that changes is run again. Remove OUT to measure everything again.
"""

import argparse
import copy
import json
import os
import statistics
import subprocess
import sys
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F

import cohort_gnn as cohort
from cohort_gnn.trainer.models.sampled import SampledGNN

ROOT = Path(__file__).resolve().parents[1]
ALLOWED_LOSS_POINTS = 1.0
SIDES = ("reference", "cohort")


@dataclass(frozen=True)
class Recipe:
    """How a data set is imported and trained. Both sides use all of it, but for what only one of them has.

    Attributes:
        features: options of `cohort dataset import`.
        batch_size, epochs, fanout: of `cohort train`.
        full_epochs: epochs, each one step on the whole graph, of the reference.
    """

    features: tuple[str, ...]
    hidden: int
    lr: float
    dropout: float
    weight_decay: float
    batch_size: int
    epochs: int
    fanout: str = "25,10"
    full_epochs: int = 200
    model: str = "sage"

    @property
    def num_layers(self) -> int:
        return len(self.fanout.split(","))

    def import_arguments(self, source: Path | str, out: Path | str, seed: int | str) -> list[str]:
        """Arguments of the command cohort."""
        split = ["--split-ratio", "0.6,0.2,0.2", "--seed", str(seed)]
        return ["dataset", "import", str(source), str(out), "--undirected", *self.features, *split]

    def train_arguments(
        self, data: Path | str, out: Path | str, seed: int | str, device: str, amp: bool = False
    ) -> list[str]:
        """Arguments of the command cohort."""
        words = f"--model {self.model} --fanout {self.fanout} --batch-size {self.batch_size} --hidden {self.hidden}"
        words += f" --epochs {self.epochs} --lr {self.lr} --weight-decay {self.weight_decay} --dropout {self.dropout}"
        words += " --amp" if amp else ""
        return ["train", str(data), "--device", device, *words.split(), "--seed", str(seed), "--out", str(out)]


WORDS = ("--row-normalize",)
DENSE = ("--pca", "128")
RECIPES = {
    "cora": Recipe(WORDS, hidden=64, lr=0.01, dropout=0.5, weight_decay=5e-4, batch_size=256, epochs=20),
    "citeseer": Recipe(WORDS, hidden=64, lr=0.01, dropout=0.5, weight_decay=5e-4, batch_size=256, epochs=20),
    "amazon_photo": Recipe(
        (), 128, lr=0.003, dropout=0.5, weight_decay=0.0, batch_size=512, epochs=20, full_epochs=150
    ),
    "coauthor_cs": Recipe(
        DENSE, 64, lr=0.01, dropout=0.5, weight_decay=5e-4, batch_size=1024, epochs=10, full_epochs=100
    ),
    "coauthor_phy": Recipe(
        DENSE, 64, lr=0.01, dropout=0.5, weight_decay=5e-4, batch_size=1024, epochs=6, full_epochs=100
    ),
}


def run_cohort(arguments: list[str]) -> None:
    """Runs the command cohort; what it printed becomes part of the error when it fails.

    Idle OpenMP threads sleep: on a machine of few cores those of two processes would spin against each other.
    """
    environment = {"OMP_WAIT_POLICY": "passive", **os.environ}
    command = [sys.executable, "-m", "cohort_gnn", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, env=environment)
    if result.returncode:
        raise RuntimeError(f"cohort {' '.join(arguments)}\nexit status {result.returncode}\n{result.stderr}")


def cohort_accuracy(folder: Path, recipe: Recipe, seed: int, device: str, out: Path, amp: bool = False) -> float:
    """Test accuracy of `cohort train`; its run gets a folder of its own in `out`."""
    run = Path(tempfile.mkdtemp(prefix=f"{folder.name}-", dir=out))
    run_cohort([*recipe.train_arguments(folder, run, seed, device, amp), "--quiet"])
    return json.loads((run / "summary.json").read_text())["test_accuracy"]


def reference_accuracy(folder: Path, recipe: Recipe, seed: int, device: str) -> float:
    """Test accuracy of the same model when every step sees the whole graph."""
    dataset = cohort.dataset.open(folder)
    data = dataset.to_pyg().to(device)
    in_edges = in_edge_matrix(data)
    torch.manual_seed(seed)
    sizes = (dataset.feature_dim, recipe.hidden, dataset.num_classes, recipe.num_layers)
    model = SampledGNN(recipe.model, *sizes, recipe.dropout, layers="pyg").to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=recipe.lr, weight_decay=recipe.weight_decay)
    best, best_weights = -1.0, None
    for _ in range(recipe.full_epochs):
        model.train()
        optimizer.zero_grad()
        F.cross_entropy(model(data.x, in_edges)[data.train_mask], data.y[data.train_mask]).backward()
        optimizer.step()
        right = correct(model, data, in_edges)
        if (accuracy := share(right, data.val_mask)) > best:
            best, best_weights = accuracy, copy.deepcopy(model.state_dict())
    model.load_state_dict(best_weights)
    return share(correct(model, data, in_edges), data.test_mask)


def in_edge_matrix(data) -> torch.Tensor:
    """float32 [V, V], sparse CSR: row v has a one for each in-neighbour of v. PyG's faster form of edge_index."""
    size = (data.num_nodes, data.num_nodes)
    ones = torch.ones(data.num_edges, device=data.x.device)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
        return torch.sparse_coo_tensor(data.edge_index.flip(0), ones, size, check_invariants=True).to_sparse_csr()


@torch.no_grad()
def correct(model, data, in_edges: torch.Tensor) -> torch.Tensor:
    """bool [V]"""
    model.eval()
    return model(data.x, in_edges).argmax(dim=1) == data.y


def share(right: torch.Tensor, mask: torch.Tensor) -> float:
    return right[mask].float().mean().item()


class Results:
    """Test accuracies by data set, seed, side, recipe and device, kept in a file of JSON lines."""

    def __init__(self, path: Path):
        self._path = path
        lines = path.read_text().splitlines() if path.exists() else []
        self._known = {self._key(record): record["test_accuracy"] for record in map(json.loads, lines)}

    @staticmethod
    def _key(record: dict) -> str:
        return json.dumps({key: record[key] for key in ("dataset", "seed", "side", "settings")}, sort_keys=True)

    def get(self, compute, **record) -> float:
        """The known accuracy of a record without one, else what compute() gives."""
        key = self._key(record)
        if key not in self._known:
            self._known[key] = compute()
            with open(self._path, "a") as file:
                file.write(json.dumps(record | {"test_accuracy": self._known[key]}) + "\n")
        return self._known[key]


def side_settings(recipe: Recipe, device: str, amp: bool = False) -> dict[str, list[str]]:
    """What a side's result depends on, as the words of its commands."""
    imported = recipe.import_arguments("IN", "DATA", "S")
    train = recipe.train_arguments("DATA", "RUN", "S", device, amp)
    keys = ("model", "hidden", "lr", "dropout", "weight_decay", "num_layers")
    shared = [f"{key}={getattr(recipe, key)}" for key in keys]
    return {
        "reference": [*imported, "full", f"epochs={recipe.full_epochs}", *shared, device],
        "cohort": [*imported, *train],
    }


def measure(name: str, data: Path, out: Path, num_seeds: int, device: str, amp: bool = False) -> dict[str, list[float]]:
    """Test accuracies in percent of both sides, one a seed; with ``amp`` Cohort's trains so."""
    for part in ("data", "runs"):
        (out / part).mkdir(parents=True, exist_ok=True)
    recipe, results = RECIPES[name], Results(out / "results.jsonl")
    settings = side_settings(recipe, device, amp)
    accuracies = {side: [] for side in SIDES}
    for seed in range(num_seeds):
        folder = out / "data" / "-".join([name, *(word.strip("-") for word in recipe.features), str(seed)])
        if not folder.exists():
            run_cohort(recipe.import_arguments(data / f"{name}.npz", folder, seed))
        runs = {
            "reference": lambda: reference_accuracy(folder, recipe, seed, device),  # noqa: B023 (called in this round)
            "cohort": lambda: cohort_accuracy(folder, recipe, seed, device, out / "runs", amp),  # noqa: B023
        }
        for side in SIDES:
            value = results.get(runs[side], dataset=name, seed=seed, side=side, settings=settings[side])
            accuracies[side].append(100 * value)
        print(f"{name} seed {seed}: " + ", ".join(f"{side} {accuracies[side][-1]:.2f}" for side in SIDES), flush=True)
    return accuracies


def mean_and_spread(values: list[float]) -> str:
    return f"{statistics.mean(values):.2f} ± {statistics.stdev(values) if len(values) > 1 else 0:.2f}"


def difference(accuracies: dict[str, list[float]]) -> float:
    """Points that cohort's mean is above (or, negative, below) the reference's."""
    return statistics.mean(accuracies["cohort"]) - statistics.mean(accuracies["reference"])


def print_tables(measured: dict[str, dict[str, list[float]]], num_seeds: int, device: str, amp: bool = False) -> None:
    """Markdown: the accuracies, then the commands."""
    print(f"\nTest accuracy in %, mean ± standard deviation of {num_seeds} seeds, {device}\n")
    print("| data set | PyG, full graph | cohort train | difference |\n|---|---|---|---|")
    for name, accuracies in measured.items():
        reference, ours = (mean_and_spread(accuracies[side]) for side in SIDES)
        print(f"| {name} | {reference} | {ours} | {difference(accuracies):+.2f} |")
    print("\nThe commands, S = 0, 1, ...; the reference takes full-graph steps with the same model and Adam:\n")
    for name in measured:
        recipe = RECIPES[name]
        print("    cohort " + " ".join(recipe.import_arguments(f"{name}.npz", f"{name}-S", "S")))
        print("    cohort " + " ".join(recipe.train_arguments(f"{name}-S", "RUN", "S", device, amp)))
        print(f"    reference: {recipe.full_epochs} steps\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=ROOT / "../shared/data", help="folder of the .npz files")
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(RECIPES), help="names, with commas")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--amp", action="store_true", help="cohort train --amp beside the reference in float32")
    parser.add_argument("--out", type=Path, default=ROOT / ".bench/accuracy", help="results, imported data and runs")
    args = parser.parse_args()
    if unknown := set(args.only) - set(RECIPES):
        parser.error(f"--only: expected some of {', '.join(RECIPES)}, found {', '.join(sorted(unknown))}")
    if args.seeds < 1:
        parser.error(f"--seeds: expected at least 1, found {args.seeds}")
    measured = {name: measure(name, args.data, args.out, args.seeds, args.device, args.amp) for name in args.only}
    print_tables(measured, args.seeds, args.device, args.amp)
    return int(any(difference(accuracies) < -ALLOWED_LOSS_POINTS for accuracies in measured.values()))


if __name__ == "__main__":
    sys.exit(main())
