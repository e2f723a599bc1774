#!/usr/bin/env bash
# Reductions over the lists of an Awkward Array, such as those of the neighbours of nodes, are not NumPy's: ak.softmax
# gives NaN for scores above 709 (float32: 88) and below -745; ak.max and min along an axis drop NaN, and of a list of NaN
# alone give -inf; ak.sum of 20 million float32 of 0.1 is 5 % off. Without an axis, max is NaN and the sum right.
#
# Needs: python3, PyPI; awkward==2.14.0 numpy==2.4.6 in a temporary venv. Seen: those. Guess before the run: as NumPy's
# reductions of each list, and a softmax that does not overflow.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check awkward==2.14.0 numpy==2.4.6
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import awkward as ak
import numpy as np

print("awkward", ak.__version__, "numpy", np.__version__)
weights = ak.softmax(ak.Array([[1000.0, 1], [-1000, -1001], [0, 0]]), axis=1).tolist()
largest = ak.max(ak.Array([[1.0, np.nan], [np.nan]]), axis=1).tolist(), ak.max(ak.Array([[1.0, np.nan], [np.nan]]))
values = np.full(20_000_000, 0.1, np.float32)
sums = ak.sum(ak.unflatten(values, [len(values)]), axis=1)[0], ak.sum(values)
print("softmax of [1000, 1], [-1000, -1001], [0, 0]:", weights)
print("max of [1, nan], [nan]: along the lists", largest[0], "of all", largest[1], "sums along a list and of all", *sums)
assert np.isnan(weights[0][0]) and np.isnan(weights[1]).all() and weights[2] == [0.5, 0.5]
assert largest[0] == [1, -np.inf] and np.isnan(largest[1])
assert sums[0] > 2_090_000 and abs(sums[1] - 2_000_000) < 10
PYTHON
