#!/usr/bin/env bash
# pynndescent's metric "dot" divides all rows by their lengths: its neighbours are those of the cosine. Of rows with
# different lengths, as link predictors and recommenders have, less than half of the greatest dot products are found;
# "inner_product" finds them.
#
# Needs: python3, PyPI; pynndescent==0.7.0 numpy==1.26.4 in a temporary venv. Seen: those. Guess before the run: the
# greatest dot products.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check pynndescent==0.7.0 numpy==1.26.4
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
from importlib.metadata import version

import numpy as np
from pynndescent import NNDescent

print("pynndescent", version("pynndescent"), "numpy", np.__version__)
generator = np.random.default_rng(0)
rows = (generator.standard_normal((2000, 16)) * generator.uniform(0.2, 2, (2000, 1))).astype(np.float32)
queries = generator.standard_normal((500, 16)).astype(np.float32)
products = queries @ rows.T
best = {"dot": products, "cosine": products / np.linalg.norm(rows, axis=1)}
shares = {}
for metric in ("dot", "inner_product"):
    ids, _ = NNDescent(rows, metric=metric, n_neighbors=30, random_state=0).query(queries, k=10, epsilon=0.4)
    for name, scores in best.items():
        true = np.argsort(-scores, axis=1)[:, :10]
        share = np.mean([np.isin(row, other).mean() for row, other in zip(ids, true, strict=True)])
        shares[f"metric {metric}, true {name}"] = round(float(share), 3)
print("share of the ten best that are found:", shares)
assert shares["metric dot, true cosine"] > 0.95 and shares["metric dot, true dot"] < 0.6
assert shares["metric inner_product, true dot"] > shares["metric dot, true dot"]
PYTHON
