#!/usr/bin/env bash
# nmslib's distances of space "l2" are squared by its method "hnsw", and are not by all others: "brute_force" beside
# "hnsw" on the same rows gives other numbers for the same neighbours. A threshold or a weight of an edge that was
# made with one is wrong with the other.
#
# Needs: python3, PyPI; nmslib==2.1.2 numpy==2.4.6 in a temporary venv. Seen: those. Guess before the run: the method
# changes which neighbours are found, not what their distance is.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check nmslib==2.1.2 numpy==2.4.6
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
from importlib.metadata import version

import nmslib
import numpy as np

print("nmslib", version("nmslib"), "numpy", np.__version__)
rows = np.random.default_rng(0).standard_normal((1000, 16)).astype(np.float32)
query = 2 * rows[0]
true = np.sort(np.linalg.norm(rows - query, axis=1))[:3]
found = {}
for space in ("l2", "l1"):
    for method in ("brute_force", "vptree", "sw-graph", "hnsw"):
        index = nmslib.init(method=method, space=space)
        index.addDataPointBatch(rows)
        index.createIndex(print_progress=False)
        found[space, method] = index.knnQuery(query, k=3)[1]
print("l2 by numpy", true, "by nmslib", {method: values for (space, method), values in found.items() if space == "l2"})
assert all(np.allclose(found["l2", method], true) for method in ("brute_force", "vptree", "sw-graph"))
assert np.allclose(found["l2", "hnsw"], true**2)
assert np.allclose(found["l1", "hnsw"], found["l1", "brute_force"]), "the other spaces have one distance"
PYTHON
