#!/usr/bin/env bash
# pyarrow and DuckDB read a CSV cell such as 0x10 as the integer 16, so that the ids 16 and 0x10 become one; pyarrow
# does so in casts, too. polars and pandas keep the column as text.
#
# Needs: python3, PyPI; pyarrow==26.0.1 duckdb==2.0.1 polars==2.1.0 pandas==3.1.1 in a temporary venv. Seen: pyarrow
# 26.0.1, DuckDB 2.0.1, polars 2.1.0, pandas 3.1.1. Guess before the run: text in all four, as 0x is no number in
# SQL's or in CSV's usual sense.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check pyarrow==26.0.1 duckdb==2.0.1 polars==2.1.0 pandas==3.1.1
cd "$work"
venv/bin/python - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv

print("pyarrow", pa.__version__, "duckdb", duckdb.__version__, "polars", pl.__version__, "pandas", pd.__version__)
with open("ids.csv", "w") as file:
    file.write("id\n0x10\n16\n")
found = {
    "pyarrow": pa.csv.read_csv("ids.csv")["id"].to_pylist(),
    "pyarrow, cast": pa.array(["0x10", "16"]).cast(pa.int64()).to_pylist(),
    "duckdb": duckdb.read_csv("ids.csv").to_arrow_table()["id"].to_pylist(),
    "polars": pl.read_csv("ids.csv")["id"].to_list(),
    "pandas": pd.read_csv("ids.csv")["id"].tolist(),
}
print(found)
for name, values in found.items():
    assert values == (["0x10", "16"] if name in ("polars", "pandas") else [16, 16]), name
PYTHON
