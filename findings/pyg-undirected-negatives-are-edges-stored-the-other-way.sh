#!/usr/bin/env bash
# PyG's negative_sampling(force_undirected=True) looks at the edges from a smaller to a larger id alone: of a graph
# that has each pair once, in any direction, it returns existing edges as negatives, in the share that chance has, and
# so does add_random_edge. dropout_edge(force_undirected=True) drops all of these edges, whatever p is.
#
# Needs: python3, PyPI; torch-geometric==2.8.1 torch==2.15.0 in a temporary venv (5 GB). Seen: those. Guess before the
# run: no edge among the negatives, in either direction.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check torch-geometric==2.8.1 torch==2.15.0
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import torch
import torch_geometric
from torch_geometric.utils import dropout_edge, negative_sampling

print("torch_geometric", torch_geometric.__version__, "torch", torch.__version__)
torch.manual_seed(0)
pairs = torch.combinations(torch.arange(60))
edges = pairs[torch.randperm(len(pairs))[:1000]].flip(1).t()  # each from a larger id to a smaller one
known = set(map(tuple, torch.cat([edges, edges.flip(0)], dim=1).t().tolist()))
negatives = negative_sampling(edges, 60, 600, force_undirected=True)
wrong = sum(tuple(pair) in known for pair in negatives.t().tolist())
kept = dropout_edge(edges, p=0.01, force_undirected=True)[0].size(1)
print("negatives that are edges:", wrong, "of", negatives.size(1), "edges that are left of 1,000 with p=0.01:", kept)
assert wrong > 200 and kept == 0
both = torch.cat([edges, edges.flip(0)], dim=1)
negatives = negative_sampling(both, 60, 600, force_undirected=True)
assert not any(tuple(pair) in known for pair in negatives.t().tolist())
PYTHON
