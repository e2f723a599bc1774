#!/usr/bin/env bash
# DuckDB reads an id of 2^63 or more from a CSV exactly, as HUGEINT, and writes such a column to Parquet as DOUBLE
# without a word: ids that differ become equal. UBIGINT columns stay exact, but DuckDB reads them back from its own
# CSV as HUGEINT.
#
# Needs: python3, PyPI; duckdb==2.0.1 pyarrow==26.0.1 in a temporary venv. Seen: DuckDB 2.0.1, pyarrow 26.0.1. Guess
# before the run: DECIMAL(38, 0), which Parquet has for it, or an error.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check duckdb==2.0.1 pyarrow==26.0.1
cd "$work"
venv/bin/python - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import duckdb
import pyarrow.parquet as pq

print("duckdb", duckdb.__version__)
with open("ids.csv", "w") as file:
    file.write("id\n9223372036854775809\n9223372036854775811\n7\n")
relation = duckdb.read_csv("ids.csv")
print("of the CSV:", relation.types)
relation.write_parquet("ids.parquet")
ids = pq.read_table("ids.parquet")["id"]
print("in Parquet:", ids.type, ids.to_pylist())
assert str(relation.types[0]) == "HUGEINT" and str(ids.type) == "double" and len(set(ids.to_pylist())) == 2
PYTHON
