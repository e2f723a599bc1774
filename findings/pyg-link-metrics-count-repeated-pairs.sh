#!/usr/bin/env bash
# PyG's LinkPredRecall, F1, MAP and NDCG count a pair that edge_label_index has several times as several right answers, of
# which a list of recommendations can hold one: whoever bought one thing three times and another once has a recall of a
# quarter for the first. Precision, MRR and hit ratio do not change. Nothing of this is in the documentation.
#
# Needs: python3, PyPI; torch-geometric==2.8.1 torch==2.15.0 in a temporary venv (5 GB). Seen: those. Guess before the
# run: the right answers of a source are a set.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check torch-geometric==2.8.1 torch==2.15.0
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import torch
import torch_geometric
from torch_geometric import metrics

print("torch_geometric", torch_geometric.__version__, "torch", torch.__version__)
offered = torch.tensor([[0, 1, 2]])
once, repeated = torch.tensor([[0, 0], [0, 9]]), torch.tensor([[0, 0, 0, 0], [0, 0, 0, 9]])
values = {}
for name in ("Precision", "Recall", "F1", "MAP", "NDCG", "MRR", "HitRatio"):
    values[name] = []
    for pairs in (once, repeated):
        metric = getattr(metrics, f"LinkPred{name}")(k=3)
        metric.update(offered, pairs)
        values[name].append(round(metric.compute().item(), 3))
print("right are 0 and 9; each once, and 0 three times:", values)
assert values["Recall"] == [0.5, 0.25]
assert all(first > second for first, second in (values[name] for name in ("Recall", "F1", "MAP", "NDCG")))
assert all(first == second for first, second in (values[name] for name in ("Precision", "MRR", "HitRatio")))
PYTHON
