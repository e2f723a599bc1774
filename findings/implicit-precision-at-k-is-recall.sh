#!/usr/bin/env bash
# implicit's precision@k divides the hits of all users by the number of held-out items that lists of k could hit, not
# by the number of items in the lists: the "p@k" of a split with one held-out item per user is its recall. Lists of ten
# of which one item is right have a precision@10 of 1.
#
# Needs: python3, PyPI; implicit==0.7.3 numpy==2.4.6 scipy==1.17.1 in a temporary venv. Seen: those. Guess before the
# run: 0.1.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check implicit==0.7.3 numpy==2.4.6 scipy==1.17.1
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import implicit
import numpy as np
from implicit.evaluation import precision_at_k
from implicit.nearest_neighbours import CosineRecommender
from scipy.sparse import csr_matrix

print("implicit", implicit.__version__, "numpy", np.__version__)
users = np.arange(40)
held_out = users % 10
# each user has item 10, and lists have the ten others
train = csr_matrix((np.ones(40), (users, np.full(40, 10))), shape=(40, 11))
test = csr_matrix((np.ones(40), (users, held_out)), shape=(40, 11))
model = CosineRecommender(num_threads=1)
model.fit(train + test, show_progress=False)
offered, _ = model.recommend(users, train, N=10)
hits = (offered == held_out[:, None]).sum(axis=1)
found = precision_at_k(model, train, test, K=10, show_progress=False, num_threads=1)
print("hits in each list of ten:", hits.min(), "to", hits.max(), "precision@10:", found)
assert (hits == 1).all() and found == 1
PYTHON
