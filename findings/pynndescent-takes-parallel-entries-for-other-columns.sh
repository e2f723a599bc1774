#!/usr/bin/env bash
# pynndescent takes the entries of a CSR matrix that are at one place for values of two columns: of a matrix that has
# parallel edges side by side, which SciPy and scikit-learn add up, distances are other numbers and neighbours other
# rows. After sum_duplicates(), which changes no value, they are right. UMAP finds its neighbours with it.
#
# Needs: python3, PyPI; pynndescent==0.7.0 scikit-learn==1.9.1 scipy==1.17.1 numpy==1.26.4 in a temporary venv. Seen:
# those. Guess before the run: entries at one place are added up, as by scikit-learn, or refused.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check \
  pynndescent==0.7.0 scikit-learn==1.9.1 scipy==1.17.1 numpy==1.26.4
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
from importlib.metadata import version

import numpy as np
from pynndescent import NNDescent
from scipy.sparse import csr_matrix, random
from sklearn.neighbors import NearestNeighbors

print("pynndescent", version("pynndescent"), "scikit-learn", version("scikit-learn"), "numpy", np.__version__)
whole = random(300, 20, 0.4, "csr", random_state=0, dtype=np.float32)
share = np.random.default_rng(0).random(whole.nnz, dtype=np.float32)
values = np.stack([whole.data * share, whole.data * (1 - share)], axis=1).ravel()
parts = csr_matrix((values, np.repeat(whole.indices, 2), 2 * whole.indptr), shape=whole.shape)
print("largest difference of the two matrices:", abs(parts - whole).max())
distances, neighbors = NearestNeighbors(n_neighbors=5, algorithm="brute").fit(parts.copy()).kneighbors(parts.copy())
found = {}
for name, matrix in (("whole", whole), ("parts", parts)):
    ids, lengths = NNDescent(matrix.copy(), n_neighbors=5, random_state=0).neighbor_graph
    found[name] = float(np.mean([np.isin(row, true).mean() for row, true in zip(ids, neighbors, strict=True)]))
    print(name, "share of scikit-learn's neighbours:", round(found[name], 2), "distances", lengths[0])
print("distances by scikit-learn", distances[0])
assert abs(parts - whole).max() < 1e-6 and found["whole"] > 0.95 and found["parts"] < 0.7
PYTHON
