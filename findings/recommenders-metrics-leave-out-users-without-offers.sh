#!/usr/bin/env bash
# Precision, recall and MAP of the package recommenders are means over the users that have offers, its nDCG over all:
# a model that offers nothing to 99 of 100 users has 1, 1, 1 and 0.01 if it is right for the last one. Models that
# drop users, by a filter or as they are new, gain by the first three. ranx counts 0 for these users in all.
#
# Needs: python3, PyPI; recommenders==1.2.1 with what its metrics import, in a temporary venv. Seen: pandas 2.3.3,
# scikit-learn 1.8.0, numpy 1.26.4, ranx 0.3.21. Guess before the run: 0.01.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check \
  pandas==2.3.3 scikit-learn==1.8.0 numpy==1.26.4 ranx==0.3.21
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check --no-deps recommenders==1.2.1
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
from importlib.metadata import version

import numpy as np
import pandas as pd
from ranx import Qrels, Run, evaluate
from recommenders.evaluation.python_evaluation import map_at_k, ndcg_at_k, precision_at_k, recall_at_k

print("recommenders", version("recommenders"), "ranx", version("ranx"), "pandas", pd.__version__)
right = pd.DataFrame({"userID": range(100), "itemID": range(100), "rating": 1.0})
offers = pd.DataFrame({"userID": [7], "itemID": [7], "prediction": [0.9]})
measures = (precision_at_k, recall_at_k, ndcg_at_k, map_at_k)
values = {measure.__name__: measure(right, offers, k=1) for measure in measures}
run = Run({"7": {"7": 0.9}})
theirs = evaluate(Qrels({str(user): {str(user): 1} for user in range(100)}), run, "precision@1", make_comparable=True)
print("offers to one of 100 users:", values, "ranx", theirs)
assert np.isclose(values.pop("ndcg_at_k"), 0.01) and set(values.values()) == {1.0} and np.isclose(theirs, 0.01)
PYTHON
