"""Two scripts of PyG, with PyG's loader and with Cohort's in its place: the same test metrics?

    PYTHONPATH=build/python python bench/accuracy_scripts.py --data ../shared/data [--seeds 10] [--only nodes]

- **nodes**: the classes of amazon_photo by two `GCNConv` layers with `edge_weight`, which is larger for nodes with
  similar features. Metric: accuracy.
- **links**: words of cora's papers by two layers of `HeteroConv`, on a HeteroData after `T.ToUndirected` and
  `T.RandomLinkSplit` with `disjoint_train_ratio`, as in PyG's tutorial. Metric: AUC.

Nothing but the class of the loader differs between the sides. The two runs of a seed have the same split and initial
weights; they draw other neighbours and negatives. The table has the mean of their differences with its 95 % interval.
Exit status 1 if the interval is without 0, or the mean is 0.5 points or more.

PyG's loaders need torch-sparse or pyg-lib: pip install --no-build-isolation torch-scatter torch-sparse
"""

import argparse
import importlib.util
import math
import statistics
import sys
import tempfile
import warnings
from pathlib import Path

import torch
import torch.nn.functional as F
import torch_geometric.transforms as T
from accuracy import ROOT, mean_and_spread, run_cohort
from scipy.stats import rankdata
from scipy.stats import t as student
from torch import Tensor, nn
from torch_geometric import loader as pygs
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import GCNConv, HeteroConv, SAGEConv

import cohort_gnn as cohort

ALLOWED_POINTS = 0.5
HAS, HAD = ("paper", "has", "word"), ("word", "rev_has", "paper")


class Classifier(nn.Module):
    """Two GCN layers with edge weights."""

    def __init__(self, num_features: int, num_classes: int):
        super().__init__()
        self.first, self.second = GCNConv(num_features, 64), GCNConv(64, num_classes)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        """float32 [V, classes]"""
        hidden = F.dropout(self.first(x, edge_index, edge_weight).relu(), 0.5, self.training)
        return self.second(hidden, edge_index, edge_weight)


def classify(loaders, data: Data, seed: int) -> float:
    """The script for nodes; its test accuracy.

    Args:
        loaders: torch_geometric.loader or cohort_gnn.
    """
    torch.manual_seed(seed)
    data = T.RandomNodeSplit("train_rest", num_val=0.2, num_test=0.2)(data)
    train = loaders.NeighborLoader(data, [8, 4], data.train_mask, batch_size=512, shuffle=True)
    test = loaders.NeighborLoader(data, [8, 4], data.test_mask, batch_size=1024)
    model = Classifier(data.num_features, int(data.y.max()) + 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    for _ in range(10):
        for batch in train:
            optimizer.zero_grad()
            out = model(batch.x, batch.edge_index, batch.edge_weight)[: batch.batch_size]
            F.cross_entropy(out, batch.y[: batch.batch_size]).backward()
            optimizer.step()
    model.eval()
    correct = 0
    with torch.no_grad():
        for batch in test:
            out = model(batch.x, batch.edge_index, batch.edge_weight)[: batch.batch_size]
            correct += int((out.argmax(1) == batch.y[: batch.batch_size]).sum())
    return correct / int(data.test_mask.sum())


class Encoder(nn.Module):
    """A row for each word, and two layers of SAGEConv for both types."""

    def __init__(self, num_features: int, num_words: int):
        super().__init__()
        self.paper, self.words = nn.Linear(num_features, 32), nn.Embedding(num_words, 32)
        self.layers = nn.ModuleList(HeteroConv({name: SAGEConv(32, 32) for name in (HAS, HAD)}) for _ in range(2))

    def forward(self, batch: HeteroData) -> dict[str, Tensor]:
        """float32 [nodes, 32] of each type."""
        rows = {"paper": self.paper(batch["paper"].x), "word": self.words(batch["word"].word)}
        rows = {name: each.relu() for name, each in self.layers[0](rows, batch.edge_index_dict).items()}
        return self.layers[1](rows, batch.edge_index_dict)


def scores_of(model: Encoder, batch: HeteroData) -> Tensor:
    """float32 [pairs]"""
    rows = model(batch)
    paper, word = batch[HAS].edge_label_index
    return (rows["paper"][paper] * rows["word"][word]).sum(1)


def predict(loaders, data: HeteroData, seed: int) -> float:
    """The script for links; its test AUC. Arguments as of `classify`."""
    torch.manual_seed(seed)
    split = T.RandomLinkSplit(
        num_val=0.1, num_test=0.1, disjoint_train_ratio=0.3, neg_sampling_ratio=1.0,
        add_negative_train_samples=False, edge_types=[HAS], rev_edge_types=[HAD],
    )  # fmt: skip
    train_data, _, test_data = split(T.ToUndirected()(data))
    pairs = train_data[HAS].edge_label_index
    how = {"num_neighbors": [8, 4], "batch_size": 1024}
    train = loaders.LinkNeighborLoader(
        train_data, edge_label_index=(HAS, pairs), neg_sampling_ratio=1.0, shuffle=True, **how
    )
    test = loaders.LinkNeighborLoader(
        test_data,
        edge_label_index=(HAS, test_data[HAS].edge_label_index),
        edge_label=test_data[HAS].edge_label,
        **how,
    )
    model = Encoder(data["paper"].num_features, data["word"].num_nodes)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(6):
        for batch in train:
            optimizer.zero_grad()
            F.binary_cross_entropy_with_logits(scores_of(model, batch), batch[HAS].edge_label).backward()
            optimizer.step()
    model.eval()
    with torch.no_grad():
        found = [(scores_of(model, batch), batch[HAS].edge_label) for batch in test]
    scores, labels = (torch.cat(each) for each in zip(*found, strict=True))
    return auc(scores, labels.bool())


def photos(folder: Path) -> Data:
    """amazon_photo with weights of edges."""
    data = graph_of(folder, "amazon_photo")
    rows = F.normalize(data.x, dim=1)
    source, target = data.edge_index
    data.edge_weight = ((rows[source] * rows[target]).sum(1) + 1) / 2
    return data


def papers(folder: Path) -> HeteroData:
    """Papers of cora, and the words that they have; a paper's features are the sums of those of its neighbours."""
    whole, data = graph_of(folder, "cora"), HeteroData()
    source, target = whole.edge_index
    data["paper"].x = torch.zeros_like(whole.x).index_add_(0, target, whole.x[source])
    words = graph_of(folder, "cora", components=0).x
    data["word"].num_nodes = words.size(1)
    data["word"].word = torch.arange(words.size(1))
    data[HAS].edge_index = words.nonzero().T.contiguous()
    return data


def graph_of(folder: Path, name: str, components: int = 64) -> Data:
    """One of the files, with every edge in both directions, and as features the principal components; 0: all words."""
    with tempfile.TemporaryDirectory() as scratch:
        how = ["--undirected", *(["--pca", str(components)] if components else [])]
        run_cohort(["dataset", "import", str(folder / f"{name}.npz"), f"{scratch}/{name}", *how])
        data = cohort.dataset.open(f"{scratch}/{name}").to_pyg()
        return Data(x=data.x.float(), y=data.y, edge_index=data.edge_index).clone()


def auc(scores: Tensor, is_edge: Tensor) -> float:
    """The share of pairs of an edge and a negative in which the edge scores higher; a tie counts half."""
    num_edges, num_others = int(is_edge.sum()), int((~is_edge).sum())
    ranks = torch.from_numpy(rankdata(scores.numpy()))[is_edge].sum().item()
    return (ranks - num_edges * (num_edges + 1) / 2) / (num_edges * num_others)


SCRIPTS = {"nodes": (classify, photos), "links": (predict, papers)}


def interval_of(differences: list[float]) -> tuple[float, float]:
    """The mean, and half of its 95 % interval."""
    count = len(differences)
    error = statistics.stdev(differences) / math.sqrt(count)
    return statistics.mean(differences), float(student.ppf(0.975, count - 1)) * error


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=ROOT / "../shared/data", help="folder of the .npz files")
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(SCRIPTS), help="names, with commas")
    parser.add_argument("--seeds", type=int, default=10)
    args = parser.parse_args()
    if unknown := set(args.only) - set(SCRIPTS):
        parser.error(f"--only: expected some of {', '.join(SCRIPTS)}, found {', '.join(sorted(unknown))}")
    if args.seeds < 2:
        parser.error(f"--seeds: expected at least 2, found {args.seeds}")
    if not any(importlib.util.find_spec(name) for name in ("pyg_lib", "torch_sparse")):
        parser.error("PyG's loaders need torch-sparse: pip install --no-build-isolation torch-scatter torch-sparse")
    warnings.filterwarnings("ignore", "Using 'NeighborSampler' without a 'pyg-lib' installation")
    rows, is_other = [], False
    for name in args.only:
        script, graph = SCRIPTS[name]
        data = graph(args.data)
        sides: tuple[list[float], list[float]] = ([], [])
        for seed in range(args.seeds):
            for loaders, found in zip((pygs, cohort), sides, strict=True):
                found.append(100 * script(loaders, data, seed))
            print(f"{name} seed {seed}: PyG {sides[0][-1]:.2f}, Cohort {sides[1][-1]:.2f}", flush=True)
        mean, half = interval_of([there - here for here, there in zip(*sides, strict=True)])
        told = " | ".join(map(mean_and_spread, sides))
        rows.append(f"| {name} | {told} | {mean:+.2f} | {mean - half:+.2f} to {mean + half:+.2f} |")
        is_other |= abs(mean) > half or abs(mean) >= ALLOWED_POINTS
    print("| script | PyG's loader | Cohort's loader | difference | 95 % interval |\n|---|---|---|---|---|")
    print("\n".join(rows))
    return int(is_other)


if __name__ == "__main__":
    sys.exit(main())
