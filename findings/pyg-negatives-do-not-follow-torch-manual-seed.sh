#!/usr/bin/env bash
# PyG's negative_sampling draws with Python's random: torch.manual_seed, and a torch.Generator, leave its negatives as
# they come. RandomLinkSplit after torch.manual_seed has the same held-out edges in each run and other negatives, so
# that test scores of two runs, or of two ranks, are of different tasks. torch_geometric.seed_everything sets all
# three.
#
# Needs: python3, PyPI; torch-geometric==2.8.1 torch==2.15.0 in a temporary venv (5 GB). Seen: those. Guess before the
# run: the same negatives after the same torch.manual_seed.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check torch-geometric==2.8.1 torch==2.15.0
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import torch
import torch_geometric
import torch_geometric.transforms as T
from torch_geometric.data import Data

print("torch_geometric", torch_geometric.__version__, "torch", torch.__version__)
data = Data(edge_index=torch.randint(0, 1000, (2, 5000)), num_nodes=1000)


def test_part(seed):
    seed(0)
    part = T.RandomLinkSplit(num_val=0.1, num_test=0.1)(data)[2]
    edges, negatives = (part.edge_label_index[:, part.edge_label == label].tolist() for label in (1, 0))
    return edges, negatives


first, second = test_part(torch.manual_seed), test_part(torch.manual_seed)
print("torch.manual_seed: the same edges", first[0] == second[0], "the same negatives", first[1] == second[1])
assert first[0] == second[0] and first[1] != second[1]
first, second = test_part(torch_geometric.seed_everything), test_part(torch_geometric.seed_everything)
print("seed_everything: the same edges", first[0] == second[0], "the same negatives", first[1] == second[1])
assert first == second
PYTHON
