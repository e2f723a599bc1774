#!/usr/bin/env bash
# Voyager's get_distance of two vectors in the space of inner products is not the distance that query gives, 1 - a·b.
# It changes with the vectors that are added, whatever the two are: with m, the longest length in the index, it is
# 1 - a·b - (m - |a|)(m - |b|), as both get the coordinate that is added to those of the index alone in a query.
#
# Needs: python3, PyPI; voyager==2.2.3 numpy==2.4.6 in a temporary venv. Seen: those. Guess before the run: the
# distances of query, whatever else is in the index.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check voyager==2.2.3 numpy==2.4.6
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
from importlib.metadata import version

import numpy as np
from voyager import Index, Space

print("voyager", version("voyager"), "numpy", np.__version__)
index = Index(Space.InnerProduct, num_dimensions=2)
first, second = np.eye(2, dtype=np.float32)
index.add_item(first)
index.add_item(second)
for longer in (None, [3, 4], [30, 40]):
    if longer is not None:
        index.add_item(np.array(longer, np.float32))
    ids, distances = index.query(first, k=index.num_elements)
    of_query, longest = float(distances[ids == 1][0]), 1 if longer is None else np.linalg.norm(longer)
    pair, itself = index.get_distance(first, second), index.get_distance(first, first)
    print("added", longer, "distance of (1, 0) and (0, 1): query", of_query, "get_distance", pair, "to itself", itself)
    assert of_query == 1 and np.isclose(pair, 1 - (longest - 1) ** 2) and np.isclose(itself, -((longest - 1) ** 2))
PYTHON
