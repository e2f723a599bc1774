#!/usr/bin/env bash
# A graph that networkx writes as Pajek and reads again has coordinates of its nodes, all 0, called x and y. PyG's
# from_networkx makes features and labels of them: the graph, which had neither, has one class with all nodes.
#
# Needs: python3, PyPI; networkx==3.6.1 torch==2.10.0 torch_geometric==2.8.1 in a temporary venv. Seen: these. Guess
# before the run: a Data with edge_index and num_nodes, as of the same graph in memory.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check networkx==3.6.1 torch==2.10.0 torch_geometric==2.8.1
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import networkx
import torch_geometric
from torch_geometric.utils import from_networkx

graph = networkx.path_graph(3)
networkx.write_pajek(graph, "path.net")
before, after = from_networkx(graph), from_networkx(networkx.read_pajek("path.net"))
print("networkx", networkx.__version__, "torch_geometric", torch_geometric.__version__)
print("in memory:", before)
print("read:     ", after, "x", after.x.tolist(), "y", after.y.tolist())
assert before.x is None and before.y is None
assert after.x.tolist() == after.y.tolist() == [0.0, 0.0, 0.0]
PYTHON
