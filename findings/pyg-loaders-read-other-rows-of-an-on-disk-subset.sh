#!/usr/bin/env bash
# PyG's DataLoader over a part of an OnDiskDataset gives the first rows of the file, as many as the part has, and not the
# rows of the part: dataset[test_ids] is the beginning of the file, as dataset[train_ids] is. dataset[ids][i] is right,
# and so is the loader over a part of an InMemoryDataset. The loader calls multi_get(), which counts from the beginning of
# the file; SQLiteDatabase takes a negative bound of a slice for the beginning, too: db[-2:] are all rows.
#
# Needs: python3, PyPI; torch-geometric==2.8.1 torch==2.15.0 in a temporary venv (5 GB). Seen: those. Guess before the
# run: the rows of the part, as of every other data set.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check torch-geometric==2.8.1 torch==2.15.0
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import torch
import torch_geometric
from torch_geometric.data import Data, OnDiskDataset
from torch_geometric.loader import DataLoader

print("torch_geometric", torch_geometric.__version__, "torch", torch.__version__)


class Rows(OnDiskDataset):
    def __init__(self, root):
        super().__init__(root, schema={"x": {"dtype": torch.float32, "size": (-1, 1)}})

    def serialize(self, data):
        return {"x": data.x}

    def deserialize(self, row):
        return Data(x=row["x"])


rows = Rows("rows")
rows.extend([Data(x=torch.full((1, 1), float(i))) for i in range(6)])
part = rows[torch.tensor([5, 3, 4])]
one_by_one = [part[i].x.item() for i in range(len(part))]
loaded = [value for batch in DataLoader(part, batch_size=2) for value in batch.x.flatten().tolist()]
print("rows 5, 3, 4 one by one", one_by_one, "of a DataLoader", loaded)
assert one_by_one == [5, 3, 4] and loaded == [0, 1, 2]
last_two = [row["x"].item() for row in rows.db[-2:]]
print("db[-2:]", last_two)
assert last_two == [0, 1, 2, 3, 4, 5]
PYTHON
