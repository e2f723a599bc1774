#!/usr/bin/env bash
# fastparquet writes a table in Hive partitions without the rows whose partition column is null, and says nothing; pyarrow
# writes them into a folder of their own.
#
# Needs: python3, PyPI; fastparquet==2026.9.0 pandas==3.1.1 pyarrow==26.0.1 in a temporary venv. Seen: those. Guess before
# the run: a folder __HIVE_DEFAULT_PARTITION__, as of pyarrow.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check fastparquet==2026.9.0 pandas==3.1.1 pyarrow==26.0.1
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import os

import fastparquet
import pandas as pd
import pyarrow.parquet as pq

print("fastparquet", fastparquet.__version__, "pandas", pd.__version__)
table = pd.DataFrame({"kind": ["a", None, "b"], "value": [1, 2, 3]})
fastparquet.write("by_fastparquet", table, file_scheme="hive", partition_on=["kind"])
table.to_parquet("by_pyarrow", engine="pyarrow", partition_cols=["kind"])
rows = {name: len(pq.read_table(name)) for name in ("by_fastparquet", "by_pyarrow")}
print("of 3 rows", rows, sorted(os.listdir("by_fastparquet")))
assert rows == {"by_fastparquet": 2, "by_pyarrow": 3}
PYTHON
