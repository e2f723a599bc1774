#!/usr/bin/env bash
# DGL's multi_update_all takes an edge type without edges at a node for a message of 0: with cross_reducer="max" a node
# whose only messages are negative has 0, and with "mean" the sum is divided by the types that are there somewhere. Within
# one type, fn.max of the same messages is negative. "min" has the same fault for positive messages.
#
# Needs: python3, PyPI; dgl==2.1.0 torch==2.2.1 in a temporary venv (5 GB). Seen: dgl 2.1.0, torch 2.2.1. Guess before the
# run: the maximum of the messages that are there, as within one type.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check \
  dgl==2.1.0 torch==2.2.1 torchdata==0.7.1 numpy==1.26.4 pydantic pyyaml pandas
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import dgl
import dgl.function as fn
import torch

print("dgl", dgl.__version__, "torch", torch.__version__)
types = {("user", "likes", "item"): ([0, 1], [0, 0]), ("user", "buys", "item"): ([0], [1])}
graph = dgl.heterograph(types, num_nodes_dict={"user": 2, "item": 2})
graph.nodes["user"].data["h"] = torch.tensor([[-1.0], [-2.0]])
values = {}
for reducer in ("max", "mean", "sum"):
    messages = fn.copy_u("h", "m"), fn.sum("m", "out")
    graph.multi_update_all({"likes": messages, "buys": messages}, reducer)
    values[reducer] = graph.nodes["item"].data["out"].flatten().tolist()
graph.update_all(fn.copy_u("h", "m"), fn.max("m", "out"), etype="likes")
print("sums of likes -3 and none, of buys none and -1; over the types:", values)
print("fn.max within likes:", graph.nodes["item"].data["out"].flatten().tolist())
assert values == {"max": [0, 0], "mean": [-1.5, -0.5], "sum": [-3, -1]}
assert graph.nodes["item"].data["out"][0].item() == -1
PYTHON
