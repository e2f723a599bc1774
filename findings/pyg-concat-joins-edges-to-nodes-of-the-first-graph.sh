#!/usr/bin/env bash
# Data.concat puts the nodes of two graphs one after the other, and their edges too, but the edges of the second graph
# keep their numbers: they join nodes of the first, and the nodes of the second have none. Batch.from_data_list adds
# the number of nodes. The documentation has a condition on shapes alone. Of HeteroData the same.
#
# Needs: python3, PyPI; torch-geometric==2.8.1 torch==2.15.0 in a temporary venv (5 GB). Seen: those. Guess before the
# run: the edges of the second graph join its nodes, as in a Batch.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check torch-geometric==2.8.1 torch==2.15.0
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import torch
import torch_geometric
from torch_geometric.data import Batch, Data, HeteroData

print("torch_geometric", torch_geometric.__version__, "torch", torch.__version__)
one = Data(x=torch.zeros(2, 1), edge_index=torch.tensor([[0], [1]]))
two = Data(x=torch.ones(2, 1), edge_index=torch.tensor([[1], [0]]))
joined, batch = one.concat(two), Batch.from_data_list([one, two])
print("nodes", joined.x.flatten().tolist(), "edges", joined.edge_index.tolist(), "Batch", batch.edge_index.tolist())
assert joined.x.tolist() == batch.x.tolist() == [[0], [0], [1], [1]]
assert joined.edge_index.tolist() == [[0, 1], [1, 0]] and batch.edge_index.tolist() == [[0, 3], [1, 2]]
names = "node", ("node", "to", "node")
typed = [HeteroData({names[0]: {"x": part.x}, names[1]: {"edge_index": part.edge_index}}) for part in (one, two)]
assert typed[0].concat(typed[1])["node", "to", "node"].edge_index.tolist() == [[0, 1], [1, 0]]
PYTHON
