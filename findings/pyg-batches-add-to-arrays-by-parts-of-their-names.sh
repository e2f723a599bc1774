#!/usr/bin/env bash
# In a batch of graphs, PyG adds 1 plus the largest value of the graphs before to each array with "batch" in its name,
# also to labels such as lab_batch and to features such as batch_effect, and the number of nodes to each array with
# "index" in its name, whose rows it puts side by side: a feature price_index [1, 2] of three graphs is one row of 6.
# to_data_list() subtracts again, so that a check of the graphs finds nothing. The documentation of batches names
# "index", not "batch".
#
# Needs: python3, PyPI; torch-geometric==2.8.1 torch==2.15.0 in a temporary venv (5 GB). Seen: those. Guess before the
# run: arrays that are not batch, edge_index or face are joined as they are.
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


def graph(laboratory):
    arrays = {"lab_batch": torch.tensor([laboratory]), "batch_effect": torch.tensor([[laboratory / 2]])}
    return Data(x=torch.ones(2, 1), price_index=torch.tensor([[1.0, 2.0]]), **arrays)


batch = Batch.from_data_list([graph(3), graph(3), graph(1)])
labels, effects, prices = batch.lab_batch.tolist(), batch.batch_effect.flatten().tolist(), batch.price_index.tolist()
print("lab_batch 3, 3, 1:", labels, "batch_effect 1.5, 1.5, 0.5:", effects, "price_index 1, 2 of each:", prices)
assert labels == [3, 7, 9] and effects == [1.5, 3.5, 4.5] and prices == [[1, 2, 3, 4, 5, 6]]
assert [one.lab_batch.item() for one in batch.to_data_list()] == [3, 3, 1]
typed = [HeteroData({"cell": {"x": torch.ones(2, 1), "lab_batch": torch.tensor([3, 3])}}) for _ in range(2)]
assert Batch.from_data_list(typed)["cell"].lab_batch.tolist() == [3, 3, 7, 7]
PYTHON
