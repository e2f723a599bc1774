#!/usr/bin/env bash
# cornac's AUC counts a pair of a right and a wrong item with the same score as wrong, not as half right: a model that
# gives all items one score has 0, not a half, and turned scores do not have one minus the AUC. MostPop, the customary
# baseline, has many ties.
#
# Needs: python3, PyPI; cornac==2.2.1 numpy==1.26.4 scipy==1.17.1 scikit-learn==1.8.0 in a temporary venv. Seen: those.
# Expected, though not written down before: 0.5.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check \
  cornac==2.2.1 numpy==1.26.4 scipy==1.17.1 scikit-learn==1.8.0
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
from importlib.metadata import version

import numpy as np
from cornac.metrics import AUC
from sklearn.metrics import roc_auc_score

print("cornac", version("cornac"), "numpy", np.__version__)
right = np.array([2, 5])
items = np.arange(8)
for name, scores in {"one score": np.ones(8), "counts": np.array([3.0, 1, 2, 2, 1, 1, 1, 0])}.items():
    found = [AUC().compute(item_indices=items, pd_scores=sign * scores, gt_pos=right) for sign in (1, -1)]
    theirs = [roc_auc_score(np.isin(items, right), sign * scores) for sign in (1, -1)]
    print(name, "AUC of the scores and of them turned:", np.round(found, 3), "of scikit-learn:", np.round(theirs, 3))
    assert np.isclose(sum(theirs), 1) and sum(found) < 0.75
    assert name == "counts" or (found == [0, 0] and theirs == [0.5, 0.5])
PYTHON
