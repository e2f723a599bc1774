#!/usr/bin/env bash
# RecPack's ReciprocalRankK and RecallK take the entries of the matrix of right items for values: an item that the user
# had three times, or a rating of 3, has a reciprocal rank of a third at the first place, and the recall of a perfect
# list is 1/3, not 1 as its formula, a quotient of two sums of these entries, says. HitK and PrecisionK take them for
# marks. Its pipelines give metrics ones; calls of `calculate` need `binary_values`.
#
# Needs: python3, PyPI; recpack==0.3.6 with what its metrics import, in a temporary venv. Seen: numpy 2.4.6,
# scipy 1.17.1, pandas 2.3.3. Guess before the run: 1, as counts are no places.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check \
  numpy==2.4.6 scipy==1.17.1 pandas==2.3.3 scikit-learn==1.8.0 tqdm==4.67.1 pyyaml==6.0.3
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check --no-deps recpack==0.3.6
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
from importlib.metadata import version

import numpy as np
from recpack.metrics import HitK, PrecisionK, RecallK, ReciprocalRankK
from scipy.sparse import csr_matrix

print("recpack", version("recpack"), "numpy", np.__version__)
scores = csr_matrix(np.array([[0.9, 0.5, 0.1]]))
for count in (1, 3):
    right = csr_matrix(np.array([[count, 0, 0]]))
    seen = {}
    for measure in (ReciprocalRankK(2), RecallK(2), HitK(2), PrecisionK(2)):
        measure.calculate(right, scores)
        seen[measure.name] = round(float(measure.value), 3)
    print("the right item, at the first place, had", count, "times:", seen)
    assert list(seen.values()) == [round(1 / count, 3), round(1 / count, 3), 1, 0.5]
PYTHON
