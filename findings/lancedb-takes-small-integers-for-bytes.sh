#!/usr/bin/env bash
# LanceDB takes embeddings that are lists of Python ints from 0 to 255 for bytes: the column is uint8, values that are
# added later lose their fractions ([1.5, 2.5] becomes [1, 2]; 300 is an error), queries too, and the default distance,
# documented as l2, counts the bits that differ: the nearest of [4, 0] is [0, 0], not [3, 0].
# Lists of floats are float32.
#
# Needs: python3, PyPI; lancedb==0.40.0 pyarrow==26.0.1 numpy==2.4.6 in a temporary venv. Seen: those. Guess before the
# run: vectors are float32, as of float lists, or an error.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check lancedb==0.40.0 pyarrow==26.0.1 numpy==2.4.6
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
from importlib.metadata import version

import lancedb

print("lancedb", version("lancedb"), "pyarrow", version("pyarrow"))
database = lancedb.connect("database")
found = {}
for name, rows in (("ints", [[0, 0], [3, 0], [100, 100]]), ("floats", [[0.0, 0.0], [3.0, 0.0], [100.0, 100.0]])):
    table = database.create_table(name, [{"id": row, "vector": vector} for row, vector in enumerate(rows)])
    nearest = table.search([4, 0]).limit(1).to_list()[0]
    table.add([{"id": 3, "vector": [1.5, 2.5]}])
    stored = table.to_arrow().to_pylist()[-1]["vector"]
    found[name] = str(table.schema.field("vector").type.value_type), nearest["id"], nearest["_distance"], stored
    print(f"{name}: the nearest of [4, 0] is row {nearest['id']}, [1.5, 2.5] is stored as {stored}, {found[name][0]}")
assert found["floats"] == ("float", 1, 1, [1.5, 2.5])
assert found["ints"] == ("uint8", 0, 1, [1, 2])
PYTHON
