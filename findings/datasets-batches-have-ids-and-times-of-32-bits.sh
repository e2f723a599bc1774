#!/usr/bin/env bash
# Hugging Face datasets with the format "numpy" gives a row's double as float64, and the same column of two rows as
# float32: times since 1970 lose up to a minute. Integers with one missing value come as float32, too: ids from 2^24
# on become equal. Unsigned ids of 64 bits become negative. The features say float64, int64 and uint64 all the time.
# with_format("numpy", dtype=np.float64) keeps the times; the format "arrow" keeps all.
#
# Needs: python3, PyPI; datasets==5.2.0 numpy==2.4.6 pandas==3.1.1 pyarrow==26.0.1 in a temporary venv. Seen: those.
# Guess before the run: float64, and an error for a missing integer.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check \
  datasets==5.2.0 numpy==2.4.6 pandas==3.1.1 pyarrow==26.0.1
cd "$work"
HF_HOME=$work venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
from importlib.metadata import version

import numpy as np
from datasets import Dataset

print("datasets", version("datasets"), "numpy", np.__version__)
columns = {"time": [1577836801.0, 1577836850.0, 0.0], "node": [20_000_000, 20_000_001, None]}
columns["hash"] = np.array([2**63 + 1, 1, 2], np.uint64)
table = Dataset.from_dict(columns)
print("features", {name: feature.dtype for name, feature in table.features.items()})
table = table.with_format("numpy")
row, rows = table[0], table[:]
for name in columns:
    print(name, "of a row", row[name], row[name].dtype, "of all rows", rows[name], rows[name].dtype)
assert row["time"].dtype == np.float64 and rows["time"].dtype == rows["node"].dtype == np.float32
assert row["time"] == columns["time"][0] and rows["time"][0] == rows["time"][1] == np.float64(1577836800)
assert row["node"] == 20_000_000 and rows["node"][0] == rows["node"][1] and np.isnan(rows["node"][2])
assert row["hash"] == 2**63 + 1 and rows["hash"][0] < 0
exact = table.with_format("numpy", dtype=np.float64)[:]
assert exact["time"].tolist() == columns["time"] and exact["node"][1] == 20_000_001
PYTHON
