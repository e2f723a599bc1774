#!/usr/bin/env bash
# PyG's Data.coalesce() sorts the edges and edge_attr, and nothing else of the edges: edge_weight and edge_type stay in
# their old order, also where no edge is removed, so that each has the right length and belongs to another edge.
# T.RemoveDuplicatedEdges sorts edge_attr and edge_weight alone. T.TwoHop sorts the edges and adds edge_attr to them in
# the old order. Data.sort() and T.ToUndirected take all arrays of the edges along.
#
# Needs: python3, PyPI; torch-geometric==2.8.1 torch==2.15.0 in a temporary venv (5 GB). Seen: those. Guess before the
# run: all arrays of edges are sorted with them, or those that are not merged are refused.
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


def graph():
    """Each value is 10 * source + target of its edge."""
    values = torch.tensor([21.0, 1.0, 10.0])
    ends = torch.tensor([[2, 0, 1], [1, 1, 0]])
    return Data(edge_index=ends, edge_attr=values, edge_weight=values.clone(), edge_type=values.long(), num_nodes=3)


wrong = {}
for name, change in (
    ("Data.coalesce()", lambda data: data.coalesce()),
    ("RemoveDuplicatedEdges", T.RemoveDuplicatedEdges()),
    ("TwoHop", T.TwoHop()),
    ("Data.sort()", lambda data: data.sort()),
):
    data = change(graph())
    right = {10 * source + target for source, target in graph().edge_index.t().tolist()}
    named = [10 * source + target for source, target in data.edge_index.t().tolist()]
    wrong[name] = [
        key
        for key in ("edge_attr", "edge_weight", "edge_type")
        if any(edge in right and edge != value for edge, value in zip(named, data[key].tolist()))
    ]
print("arrays whose values belong to other edges:", wrong)
assert wrong == {
    "Data.coalesce()": ["edge_weight", "edge_type"],
    "RemoveDuplicatedEdges": ["edge_type"],
    "TwoHop": ["edge_attr", "edge_weight", "edge_type"],
    "Data.sort()": [],
}
PYTHON
