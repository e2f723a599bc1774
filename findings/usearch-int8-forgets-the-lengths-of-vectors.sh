#!/usr/bin/env bash
# usearch's indexes of dtype "i8" divide each vector by its length before they round it, whatever the metric: [1, 0] and
# [0.5, 0] are stored as the same bytes. With metric="ip" the greatest inner product is found for less than half of the
# queries, where f32 and f16 find nearly all, and distances of "l2sq" are those of directions. Nothing warns.
#
# Needs: python3, PyPI; usearch==2.26.6 numpy==2.4.6 in a temporary venv. Seen: those. Guess before the run: vectors are
# scaled by one number, and the best neighbours are nearly those of float32.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check usearch==2.26.6 numpy==2.4.6
cd "$work"
venv/bin/python - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import numpy as np
import usearch
from usearch.index import Index

print("usearch", usearch.__version__, "numpy", np.__version__)
generator = np.random.default_rng(0)
rows = generator.standard_normal((2000, 16)).astype(np.float32)
rows *= generator.uniform(0.1, 1, (2000, 1)).astype(np.float32) / np.linalg.norm(rows, axis=1, keepdims=True)
best = (rows @ rows.T).argmax(axis=1)
shares = {}
for dtype in ("f32", "f16", "i8"):
    index = Index(ndim=16, metric="ip", dtype=dtype, expansion_search=500)
    index.add(np.arange(2000), rows)
    shares[dtype] = float((index.search(rows, 1).keys[:, 0] == best).mean())
pair = Index(ndim=2, metric="ip", dtype="i8")
pair.add(np.arange(2), np.array([[1, 0], [0.5, 0]], np.float32))
stored = [pair.get(key).tolist() for key in range(2)]
print("share of queries whose greatest inner product is found:", shares, "of i8: [1, 0] and [0.5, 0] are", stored)
assert shares["f32"] > 0.99 and shares["f16"] > 0.95 and shares["i8"] < 0.6
assert stored == [[127, 0], [127, 0]]
PYTHON
