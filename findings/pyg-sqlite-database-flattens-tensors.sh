#!/usr/bin/env bash
# PyG's SQLiteDatabase gives a tensor back without its shape unless the schema says its size: a table [3, 2] becomes [6],
# with the default schema, which stands for any object, as within a dictionary. Its dtype stays; bfloat16 is refused.
#
# Needs: python3, PyPI; torch-geometric==2.8.1 torch==2.15.0 in a temporary venv (5 GB). Seen: those. Guess before the
# run: an object comes back as it was.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check torch-geometric==2.8.1 torch==2.15.0
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import torch
import torch_geometric
from torch_geometric.data import SQLiteDatabase

print("torch_geometric", torch_geometric.__version__, "torch", torch.__version__)
table = torch.arange(6, dtype=torch.float16).view(3, 2)
shapes = {}
for name, schema, value in (
    ("default schema", object, table),
    ("in a dictionary", {"x": object}, {"x": table}),
    ("with a size", {"x": {"dtype": torch.float16, "size": (-1, 2)}}, {"x": table}),
):
    database = SQLiteDatabase(f"{name}.db", "rows", schema=schema)
    database.insert(0, value)
    back = database.get(0)
    back = back["x"] if isinstance(back, dict) else back
    shapes[name] = list(back.shape)
    assert back.dtype == table.dtype and torch.equal(back.view(-1), table.view(-1))
    database.close()
print("a table [3, 2] comes back:", shapes)
assert shapes == {"default schema": [6], "in a dictionary": [6], "with a size": [3, 2]}
PYTHON
