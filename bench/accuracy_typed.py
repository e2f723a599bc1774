"""Test accuracy of R-SAGE on typed graphs of real data, sampled, beside PyG's full-graph training.

    PYTHONPATH=build/python python bench/accuracy_typed.py --data ../shared/data [--only cora,coauthor_cs] [--seeds 5]

The words of a data set become nodes: a matrix of papers' (or authors') words is a relation (word, in, paper) and its
reverse, beside (paper, cites, paper). Papers keep their rows; words have learned ones (`--featureless embed`). The
reference is PyG alone: `HeteroConv` of `SAGEConv`, an `nn.Embedding` for the words, Adam, and the whole graph in every
step. Both sides take the recipe's sizes and split, and the test accuracy at their best validation epoch. Exit status 1
when a data set's mean is more than 1 point below the reference's.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from accuracy import ALLOWED_LOSS_POINTS, RECIPES, ROOT, SIDES, Recipe, difference, mean_and_spread, run_cohort, share
from torch import Tensor, nn
from torch_geometric.data import HeteroData
from torch_geometric.nn import HeteroConv, SAGEConv

import cohort_gnn as cohort

NAMES = ("cora", "coauthor_cs")
RELATIONS = (("paper", "cites", "paper"), ("word", "in", "paper"), ("paper", "has", "word"))


def import_typed(source: Path, recipe: Recipe, folder: Path, seed: int) -> None:
    """Writes the typed graph of a matrix file as a data set; rows, edges and split are those of the flat one."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        flat, raw = Path(scratch) / "flat", Path(scratch) / "raw"
        run_cohort(recipe.import_arguments(source, flat, seed))
        run_cohort(["dataset", "import", str(source), str(raw), "--undirected"])
        papers = cohort.dataset.open(flat).to_pyg()
        holders, words = cohort.dataset.open(raw).to_pyg().x.nonzero(as_tuple=True)
    data = HeteroData()
    data["paper"].x, data["paper"].y = papers.x, papers.y
    for mask in ("train_mask", "val_mask", "test_mask"):
        data["paper"][mask] = papers[mask]
    data["word"].num_nodes = int(words.max()) + 1
    ends = (papers.edge_index, torch.stack([words, holders]), torch.stack([holders, words]))
    for relation, edge_index in zip(RELATIONS, ends, strict=True):
        data[relation].edge_index = edge_index
    cohort.from_pyg(data, folder, target="paper")


class Reference(nn.Module):
    """Two layers of PyG's HeteroConv over rows of papers and learned rows of words."""

    def __init__(self, num_words: int, num_features: int, num_classes: int, recipe: Recipe):
        super().__init__()
        hidden, self.dropout = recipe.hidden, recipe.dropout
        self.words = nn.Embedding(num_words, hidden)
        nn.init.xavier_uniform_(self.words.weight)
        dims = {"paper": num_features, "word": hidden}
        self.first = HeteroConv({name: SAGEConv((dims[name[0]], dims[name[2]]), hidden) for name in RELATIONS})
        self.second = HeteroConv({name: SAGEConv(hidden, num_classes) for name in RELATIONS[:2]})

    def forward(self, x: Tensor, edge_index: dict[tuple, Tensor]) -> Tensor:
        """float32 [papers, classes]"""
        rows = self.first({"paper": x, "word": self.words.weight}, edge_index)
        rows = {name: F.dropout(value.relu(), self.dropout, self.training) for name, value in rows.items()}
        return self.second(rows, edge_index)["paper"]


def reference_accuracy(folder: Path, recipe: Recipe, seed: int) -> float:
    """Test accuracy when every step sees the whole graph."""
    dataset = cohort.dataset.open(folder)
    data = dataset.to_pyg()
    torch.manual_seed(seed)
    paper, edges = data["paper"], data.edge_index_dict
    model = Reference(data["word"].num_nodes, paper.x.shape[1], dataset.num_classes, recipe)
    optimizer = torch.optim.Adam(model.parameters(), lr=recipe.lr, weight_decay=recipe.weight_decay)
    best, best_test = -1.0, 0.0
    for step in range(recipe.full_epochs + 1):
        model.eval()
        with torch.no_grad():
            right = model(paper.x, edges).argmax(dim=1) == paper.y
        if step and (accuracy := share(right, paper.val_mask)) > best:
            best, best_test = accuracy, share(right, paper.test_mask)
        model.train()
        optimizer.zero_grad()
        F.cross_entropy(model(paper.x, edges)[paper.train_mask], paper.y[paper.train_mask]).backward()
        optimizer.step()
    return best_test


def cohort_accuracy(folder: Path, recipe: Recipe, seed: int, out: Path) -> float:
    """Test accuracy of `cohort train`; its run gets a folder of its own in ``out``."""
    run = Path(tempfile.mkdtemp(prefix=f"{folder.name}-", dir=out))
    words = recipe.train_arguments(folder, run, seed, "cpu")
    words[words.index("--model") + 1] = "rsage"
    run_cohort([*words, "--featureless", "embed", "--quiet"])
    return json.loads((run / "summary.json").read_text())["test_accuracy"]


def measure(name: str, data: Path, out: Path, num_seeds: int) -> dict[str, list[float]]:
    """Test accuracies in percent of both sides, one a seed."""
    accuracies = {side: [] for side in SIDES}
    for seed in range(num_seeds):
        folder = out / f"{name}-{seed}"
        if not folder.exists():
            import_typed(data / f"{name}.npz", RECIPES[name], folder, seed)
        accuracies["reference"].append(100 * reference_accuracy(folder, RECIPES[name], seed))
        accuracies["cohort"].append(100 * cohort_accuracy(folder, RECIPES[name], seed, out))
        print(f"{name} seed {seed}: " + ", ".join(f"{side} {accuracies[side][-1]:.2f}" for side in SIDES), flush=True)
    return accuracies


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=ROOT / "../shared/data", help="folder of the .npz files")
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(NAMES), help="names, with commas")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=ROOT / ".bench/accuracy_typed", help="imported data and runs")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    measured = {name: measure(name, args.data, args.out, args.seeds) for name in args.only}
    print("| data set | PyG, full graph | cohort train | difference |\n|---|---|---|---|")
    for name, accuracies in measured.items():
        reference, ours = (mean_and_spread(accuracies[side]) for side in SIDES)
        print(f"| {name} | {reference} | {ours} | {difference(accuracies):+.2f} |")
    return int(any(difference(accuracies) < -ALLOWED_LOSS_POINTS for accuracies in measured.values()))


if __name__ == "__main__":
    sys.exit(main())
