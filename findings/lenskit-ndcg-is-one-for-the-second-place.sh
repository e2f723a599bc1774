#!/usr/bin/env bash
# LensKit's nDCG divides by log2 of the place, and by 1 at the first and the second place: a list whose only right item
# is the second has nDCG 1, as if it were the first, and one that puts all right items one place too low may lose
# nothing. nDCG of ranx, scikit-learn and others, which divide by log2 of the place plus one, is 0.631 there. Its
# recall within K divides by at most K: it is 1 for 2 of 30. LogRankWeight(offset=1) gives the other nDCG.
#
# Needs: python3, PyPI; lenskit==2025.8.1 torch==2.15.0 numpy==2.4.6 scikit-learn==1.8.0 in a temporary venv. Seen:
# those. Guess before the run: nDCG 0.631, recall 0.067.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check \
  lenskit==2025.8.1 torch==2.15.0 numpy==2.4.6 scikit-learn==1.8.0
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
from importlib.metadata import version

import numpy as np
from lenskit.data import ItemList
from lenskit.metrics import NDCG, LogRankWeight, Recall
from sklearn.metrics import ndcg_score

print("lenskit", version("lenskit"), "numpy", np.__version__)
items = np.arange(1, 6)
offers = ItemList(item_ids=items, ordered=True)
for place in (1, 2, 3):
    right = ItemList(item_ids=[place])
    found = NDCG(n=5).measure_list(offers, right)
    other = NDCG(n=5, weight=LogRankWeight(offset=1)).measure_list(offers, right)
    theirs = ndcg_score([items == place], [-items])
    print("place", place, "nDCG@5", round(found, 3), "with offset", round(other, 3), "scikit-learn", round(theirs, 3))
    assert np.isclose(found, 1 if place <= 2 else 1 / np.log2(place)) and np.isclose(other, theirs)
many = ItemList(item_ids=np.arange(1, 31))
recall, whole = Recall(n=2).measure_list(offers, many), Recall().measure_list(offers, many)
print("30 right items: recall of two places", recall, "of five, without K", round(whole, 3))
assert recall == 1 and np.isclose(whole, 5 / 30)
PYTHON
