#!/usr/bin/env bash
# The inner join of polars does not keep the order of the left frame: the features of nodes, joined to a list of
# nodes, come in another order than the nodes. pandas keeps the order of the left frame. maintain_order='left' keeps
# it.
#
# Needs: python3, PyPI; polars==2.1.0 pandas==3.1.1 in a temporary venv. Seen: polars 2.1.0, pandas 3.1.1. Guess
# before the run: the order of the left frame, as in pandas.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check polars==2.1.0 pandas==3.1.1
cd "$work"
venv/bin/python - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import pandas as pd
import polars as pl

print("polars", pl.__version__, "pandas", pd.__version__)
nodes, features = {"id": [3, 1, 2]}, {"id": [1, 2, 3], "x": [10, 20, 30]}
found = {
    "polars": pl.DataFrame(nodes).join(pl.DataFrame(features), on="id")["id"].to_list(),
    "polars, left": pl.DataFrame(nodes).join(pl.DataFrame(features), on="id", maintain_order="left")["id"].to_list(),
    "pandas": pd.DataFrame(nodes).merge(pd.DataFrame(features), on="id")["id"].tolist(),
}
print(found)
assert found == {"polars": [1, 2, 3], "polars, left": [3, 1, 2], "pandas": [3, 1, 2]}
PYTHON
