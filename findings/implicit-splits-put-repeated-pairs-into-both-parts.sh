#!/usr/bin/env bash
# implicit's train_test_split of a COO matrix, the documented input, splits entries, not pairs: of a log in which a user
# has an item several times, the same pair is in training and in test. A recommender leaves out what was in training, so
# such pairs are misses. leave_k_out_split converts COO to CSR, and holds out pairs that stay in training, too.
# Of the same log as CSR, which adds up what is there twice, no pair is in both.
#
# Needs: python3, PyPI; implicit==0.7.3 numpy==2.4.6 scipy==1.17.1 in a temporary venv. Seen: those. Guess before the
# run: no pair is in both.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check implicit==0.7.3 numpy==2.4.6 scipy==1.17.1
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import implicit
import numpy as np
from implicit.evaluation import leave_k_out_split, train_test_split
from scipy.sparse import coo_matrix

print("implicit", implicit.__version__, "numpy", np.__version__)
generator = np.random.default_rng(0)
pairs = generator.integers(0, 200, 6000), generator.integers(0, 100, 6000)
log = coo_matrix((np.ones(6000), pairs), shape=(200, 100))
shares = {}
for split in (train_test_split, leave_k_out_split):
    for form in (log, log.tocsr()):
        train, test = split(form, random_state=0)
        shares[split.__name__, form.format] = round(train.multiply(test).nnz / test.nnz, 2)
print("share of test pairs that are in training:", shares)
assert all((share > 0.1) if form == "coo" else (share == 0) for (_, form), share in shares.items())
PYTHON
