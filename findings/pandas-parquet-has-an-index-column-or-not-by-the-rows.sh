#!/usr/bin/env bash
# Whether a filtered or sorted pandas frame has its index in a Parquet file depends on the values: if the rows that
# stay are evenly spaced, pandas 3 makes a RangeIndex of their labels, and the file has them only in its pandas
# metadata. Other readers see the rows without their numbers, in another order.
#
# Needs: python3, PyPI; pandas==3.1.1 pyarrow==26.0.1 polars==2.1.0 in a temporary venv. Seen: pandas 3.1.1, pyarrow
# 26.0.1, polars 2.1.0. Guess before the run: each frame that a filter or a sort has made has the column
# __index_level_0__.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check pandas==3.1.1 pyarrow==26.0.1 polars==2.1.0
cd "$work"
venv/bin/python - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import pandas as pd
import polars as pl
import pyarrow

print("pandas", pd.__version__, "pyarrow", pyarrow.__version__, "polars", pl.__version__)
nodes = pd.DataFrame({"x": [30, 10, 50, 20, 60, 40]})


def written(frame):
    frame.to_parquet("x.parquet")
    return frame.index.tolist(), pl.read_parquet("x.parquet").columns


for name, frame, with_column in (
    ("rows 0, 1 and 3", nodes[nodes.index.isin([0, 1, 3])], True),
    ("rows 1, 3 and 5", nodes[nodes.index.isin([1, 3, 5])], False),
    ("sorted", nodes.sort_values("x"), True),
    ("sorted, which reverses them", nodes.sort_index(ascending=False).rename_axis(None), False),
    ("sorted by a column, which reverses them", pd.DataFrame({"x": [3, 2, 1]}).sort_values("x"), False),
):
    index, columns = written(frame)
    print(f"{name}: index {index}, columns that polars sees: {columns}")
    assert ("__index_level_0__" in columns) == with_column
PYTHON
