#!/usr/bin/env bash
# scatter_reduce and index_reduce with "amax" or "amin" and include_self=False give a part of the gradient to the value
# below if it equals the result: with zeros below, the one element 0 of a group gets half its gradient, two get a third
# each. PyG's max and min aggregation put zeros below: after a ReLU, or with weights that begin with 0, gradients are too
# small. With ptr alone (segment_reduce) and with values other than 0 they are right.
#
# Needs: python3, PyPI; torch-geometric==2.8.1 torch==2.15.0 in a temporary venv (5 GB). Seen: those. Guess before the
# run: 1 for one element, a half for each of two.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check torch-geometric==2.8.1 torch==2.15.0
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import torch
import torch_geometric
from torch_geometric.nn import MaxAggregation

print("torch", torch.__version__, "torch_geometric", torch_geometric.__version__)
index = torch.tensor([0, 1, 1])


def gradient(value, function):
    x = torch.full((3, 1), value, requires_grad=True)
    function(x).sum().backward()
    return [round(share, 2) for share in x.grad.flatten().tolist()]


functions = {
    "scatter_reduce": lambda x: torch.zeros(2, 1).scatter_reduce(0, index[:, None], x, "amax", include_self=False),
    "index_reduce": lambda x: torch.zeros(2, 1).index_reduce(0, index, x, "amax", include_self=False),
    "MaxAggregation by index": lambda x: MaxAggregation()(x, index),
    "MaxAggregation by ptr": lambda x: MaxAggregation()(x, ptr=torch.tensor([0, 1, 3])),
}
shares = {name: (gradient(0.0, function), gradient(1.0, function)) for name, function in functions.items()}
print("gradients of a group of one and a group of two equal values, of 0 and of 1:", shares)
by_ptr = shares.pop("MaxAggregation by ptr")
assert by_ptr == ([1, 0.5, 0.5], [1, 0.5, 0.5])
assert all(share == ([0.5, 0.33, 0.33], [1, 0.5, 0.5]) for share in shares.values())
PYTHON
