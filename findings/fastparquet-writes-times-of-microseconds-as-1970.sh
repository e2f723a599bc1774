#!/usr/bin/env bash
# fastparquet writes the times of a pandas table as INT96 in another unit than they have: pandas 3's default is
# microseconds, they are taken for nanoseconds, and July 2024 is in January 1970 for every reader. As INT64, fastparquet's
# default, they are right.
#
# Needs: python3, PyPI; fastparquet==2026.9.0 pandas==3.1.1 pyarrow==26.0.1 in a temporary venv. Seen: those. Guess before
# the run: the same times either way.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check fastparquet==2026.9.0 pandas==3.1.1 pyarrow==26.0.1
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import fastparquet
import pandas as pd
import pyarrow.parquet as pq

print("fastparquet", fastparquet.__version__, "pandas", pd.__version__)
table = pd.DataFrame({"at": pd.to_datetime(["2024-07-01 05:00:00"])})
read = {}
for kind in ("int64", "int96"):
    file = f"{kind}.parquet"
    fastparquet.write(file, table, times=kind)
    by_itself = fastparquet.ParquetFile(file).to_pandas()
    read[kind] = [pq.read_table(file)["at"][0].as_py().year, by_itself["at"][0].year]
print(table["at"].dtype, "years by pyarrow and by fastparquet:", read)
assert read == {"int64": [2024, 2024], "int96": [1970, 1970]}
PYTHON
