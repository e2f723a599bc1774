#!/usr/bin/env bash
# scipy.io.mmwrite writes float64 values with 16 digits, so that some come back as other numbers (17 digits are
# needed); precision=17 keeps them. Of a symmetric matrix it writes one triangle unless symmetry='general' is given,
# so that the lines of the file are half of the edges.
#
# Needs: python3, PyPI; scipy==1.17.1 numpy==2.4.6 in a temporary venv. Seen: scipy 1.17.1. Guess before the run:
# float64 comes back as it was, as numpy.save, json and repr do it; each stored entry is a line.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check scipy==1.17.1 numpy==2.4.6
cd "$work"
venv/bin/python - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import numpy as np
import scipy
from scipy.io import mmread, mmwrite

print("scipy", scipy.__version__)
weights = np.random.default_rng(0).random(1000)
ends = np.arange(1000), np.roll(np.arange(1000), 1)
graph = scipy.sparse.coo_array((weights, ends), shape=(1000, 1000))


def changed(**options):
    mmwrite("g.mtx", graph, **options)
    return int((mmread("g.mtx").tocsr() != graph.tocsr()).nnz)


print(f"of 1000 weights {changed()} come back as other numbers, with precision=17 {changed(precision=17)}")
assert changed() > 100 and changed(precision=17) == 0
mmwrite("s.mtx", graph + graph.T)
with open("s.mtx") as file:
    lines = [line for line in file if line[0] != "%"]
print(f"a symmetric graph of {(graph + graph.T).nnz} entries has {len(lines) - 1} lines of entries")
assert len(lines) - 1 == (graph + graph.T).nnz // 2
PYTHON
