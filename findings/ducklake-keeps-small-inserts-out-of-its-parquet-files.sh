#!/usr/bin/env bash
# The Parquet files of a DuckLake are not its table: rows of small inserts are in its catalog alone, removed rows stay in
# the files, and a renamed column has its old name there. Edges that are read from the folder are other edges.
#
# Needs: python3, PyPI; duckdb==1.5.5 duckdb-extension-ducklake==1.5.5 in a temporary venv. Seen: these. Guess before the
# run: each insert is a Parquet file, and removed rows are in files of their own beside it.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check duckdb==1.5.5 duckdb-extension-ducklake==1.5.5
cd "$work"
venv/bin/python - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import glob
import os

import duckdb
import duckdb_extension_ducklake

folder = os.path.dirname(duckdb_extension_ducklake.__file__)
with duckdb.connect() as lake:
    lake.execute(f"LOAD '{folder}/extensions/v1.5.5/ducklake.duckdb_extension'")
    lake.execute("ATTACH 'ducklake:meta.ducklake' AS lake (DATA_PATH 'files/')")
    lake.execute("CREATE TABLE lake.pays AS SELECT i AS src, (i * 7) % 1000 AS dst FROM range(1000) r(i)")
    lake.execute("DELETE FROM lake.pays WHERE src % 10 = 0")
    lake.execute("INSERT INTO lake.pays VALUES (5000, 2), (5001, 4)")
    lake.execute("ALTER TABLE lake.pays RENAME COLUMN dst TO target")
    (rows, last), names = lake.sql("SELECT count(*), max(src) FROM lake.pays").fetchall()[0], lake.table("lake.pays").columns
print("duckdb", duckdb.__version__, "the table:", rows, "rows, the last", last, names)
files = [name for name in glob.glob("files/**/*.parquet", recursive=True) if not name.endswith("-delete.parquet")]
found = duckdb.sql(f"SELECT count(*), max(src) FROM read_parquet({files})").fetchall()[0]
print("its", len(files), "file:", *found, duckdb.read_parquet(files).columns)
assert (rows, last, names) == (902, 5001, ["src", "target"])
assert len(files) == 1 and found == (1000, 999) and duckdb.read_parquet(files).columns == ["src", "dst"]
PYTHON
