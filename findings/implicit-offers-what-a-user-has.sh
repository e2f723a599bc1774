#!/usr/bin/env bash
# implicit's recommenders give items that a user has, although filter_already_liked_items is true, to fill a list of N:
# nearest neighbours with the score 0, factors with -3.4e38. Where all lists have the same length, a user with few other
# items gets known ones. Nothing warns, and a list is never shorter.
#
# Needs: python3, PyPI; implicit==0.7.3 numpy==2.4.6 scipy==1.17.1 in a temporary venv. Seen: those. Guess before the
# run: "When true, don't return items present in the training set that were rated by the specified user": shorter lists,
# or ids of -1.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check implicit==0.7.3 numpy==2.4.6 scipy==1.17.1
cd "$work"
export OPENBLAS_NUM_THREADS=1
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import implicit
import numpy as np
from implicit.als import AlternatingLeastSquares
from implicit.nearest_neighbours import CosineRecommender
from scipy.sparse import csr_matrix

print("implicit", implicit.__version__, "numpy", np.__version__)
likes = csr_matrix(np.array([[1, 1, 1, 0], [1, 0, 0, 1], [0, 1, 0, 1], [0, 0, 1, 1]], np.float32))
for model in (
    CosineRecommender(K=4, num_threads=1),
    AlternatingLeastSquares(factors=4, random_state=0, num_threads=1),
):
    model.fit(likes, show_progress=False)
    ids, scores = model.recommend(0, likes[0], N=4, filter_already_liked_items=True)
    known = np.isin(ids, likes[0].indices)
    print(type(model).__name__, "user 0 has", likes[0].indices, "is offered", ids, "with scores", scores)
    assert known.sum() >= 2 and ids[0] == 3
    assert (scores[known] == (0 if isinstance(model, CosineRecommender) else np.finfo(np.float32).min)).all()
PYTHON
