"""Test MRR of link prediction, sampled by `cohort train --task link`, beside PyG's full-graph training.

    PYTHONPATH=build/python python bench/accuracy_links.py --data ../shared/data [--only cora,citeseer] [--seeds 5]

Both sides have the same held-out links with the same negatives (`cohort dataset split-links`), two SAGE layers, the dot
product as score, binary cross entropy with one random negative per edge, batches of equally many pairs, and Adam. The
reference is PyG alone: each step takes the whole graph without the pairs of its batch and their reverses, which Cohort
excludes, too. Both report the test MRR at the best validation MRR, in
percent. Exit status 1 when a data set's mean is more than 0.5 points below the reference's.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from accuracy import ROOT, SIDES, WORDS, difference, mean_and_spread, run_cohort
from torch import Tensor, nn
from torch_geometric.nn import SAGEConv

import cohort_gnn as cohort

ALLOWED_LOSS_POINTS = 0.5
FEATURES = {"cora": WORDS, "citeseer": WORDS}
HIDDEN, FANOUT = 128, "25,10"


class Reference(nn.Module):
    """Two layers of PyG's SAGEConv."""

    def __init__(self, num_features: int, hidden: int = HIDDEN):
        super().__init__()
        self.first, self.second = SAGEConv(num_features, hidden), SAGEConv(hidden, hidden)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """float32 [V, hidden]"""
        return self.second(self.first(x, edge_index).relu(), edge_index)


def mrr(rows: Tensor, links: cohort.dataset.HeldOut) -> float:
    """Mean reciprocal rank of links, each among its negatives; a tie counts half."""
    source, target = torch.from_numpy(links.pairs.copy()).T
    others = torch.from_numpy(links.negatives.copy())
    own = (rows[source] * rows[target]).sum(1, keepdim=True)
    scores = torch.cat(
        [
            torch.einsum("nd,nkd->nk", rows[part], rows[each])
            for part, each in zip(source.split(256), others.split(256), strict=True)
        ]
    )
    rank = 1 + (scores > own).sum(1) + (scores == own).sum(1) / 2
    return (1 / rank).mean().item()


def reference_mrr(folder: Path, seed: int, args: argparse.Namespace) -> float:
    """Test MRR when every step sees the whole graph, except the edges that it has to predict."""
    data, held_out = cohort.dataset.open(folder).to_pyg(), cohort.dataset.held_out(folder)
    torch.manual_seed(seed)
    model = Reference(data.x.shape[1])
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    names = data.edge_index[0] * data.num_nodes + data.edge_index[1]
    best, best_test = -1.0, 0.0
    for _ in range(args.epochs):
        for part in torch.randperm(data.num_edges).split(args.batch_size):
            source, target = data.edge_index[:, part]
            predicted = torch.cat([names[part], target * data.num_nodes + source])
            rows = model(data.x, data.edge_index[:, ~torch.isin(names, predicted)])
            negatives = torch.randint(data.num_nodes, (len(part),))
            scores = torch.cat([(rows[source] * rows[target]).sum(1), (rows[source] * rows[negatives]).sum(1)])
            wanted = torch.arange(2 * len(part)) < len(part)
            optimizer.zero_grad()
            F.binary_cross_entropy_with_logits(scores, wanted.float()).backward()
            optimizer.step()
        with torch.no_grad():
            rows = model(data.x, data.edge_index)
        if (value := mrr(rows, held_out["val"])) > best:
            best, best_test = value, mrr(rows, held_out["test"])
    return best_test


def cohort_mrr(folder: Path, seed: int, args: argparse.Namespace) -> float:
    """Test MRR of `cohort train`; its run gets a folder of its own in args.out."""
    run = Path(tempfile.mkdtemp(prefix=f"{folder.name}-", dir=args.out))
    words = f"--fanout {FANOUT} --eval-fanout=-1,-1 --batch-size {args.batch_size} --hidden {HIDDEN} --dropout 0"
    words += f" --epochs {args.epochs} --lr {args.lr} --device cpu --seed {seed} --quiet"
    run_cohort(["train", str(folder), *words.split(), "--out", str(run)])
    return json.loads((run / "summary.json").read_text())["test_metrics"]["mrr"]


def measure(name: str, args: argparse.Namespace) -> dict[str, list[float]]:
    """Test MRR of both sides in percent, one a seed."""
    found = {side: [] for side in SIDES}
    for seed in range(args.seeds):
        folder = args.out / f"{name}-{seed}"
        if not folder.exists():
            with tempfile.TemporaryDirectory(dir=args.out) as scratch:
                whole = Path(scratch) / "whole"
                run_cohort(
                    ["dataset", "import", str(args.data / f"{name}.npz"), str(whole), "--undirected", *FEATURES[name]]
                )
                run_cohort(
                    ["dataset", "split-links", str(whole), str(folder), "--shares", "0.05,0.1", "--seed", str(seed)]
                )
        found["reference"].append(100 * reference_mrr(folder, seed, args))
        found["cohort"].append(100 * cohort_mrr(folder, seed, args))
        print(f"{name} seed {seed}: " + ", ".join(f"{side} {found[side][-1]:.2f}" for side in SIDES), flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=ROOT / "../shared/data", help="folder of the .npz files")
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(FEATURES), help="names, with commas")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--out", type=Path, default=ROOT / ".bench/accuracy_links", help="imported data and runs")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    measured = {name: measure(name, args) for name in args.only}
    print("| data set | PyG, full graph | cohort train | difference |\n|---|---|---|---|")
    for name, values in measured.items():
        reference, ours = (mean_and_spread(values[side]) for side in SIDES)
        print(f"| {name} | {reference} | {ours} | {difference(values):+.2f} |")
    return int(any(difference(values) < -ALLOWED_LOSS_POINTS for values in measured.values()))


if __name__ == "__main__":
    sys.exit(main())
