#!/usr/bin/env bash
# pyarrow's year of a date beyond the year 32,767 is another year, without a word: DuckDB hands on its infinity as the
# greatest date, which is of the year 5,881,580, and pyarrow says 20,599; a timestamp's infinity is of 294,247, and 32,103
# for pyarrow. A feature made of it looks like any other year.
#
# Needs: python3, PyPI; pyarrow==26.0.1 duckdb==2.0.1 in a temporary venv. Seen: those. Guess before the run: the year,
# as the result is int64, or an error.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check pyarrow==26.0.1 duckdb==2.0.1 pytz
cd "$work"
venv/bin/python - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import duckdb
import pyarrow as pa
import pyarrow.compute as pc

print("pyarrow", pa.__version__, "duckdb", duckdb.__version__)
rows = duckdb.sql("SELECT 'infinity'::DATE AS day, 'infinity'::TIMESTAMP AS moment").to_arrow_table()
years = {name: (pc.year(rows[name]).type, pc.year(rows[name])[0].as_py()) for name in rows.column_names}
print({name: (str(rows[name].type), str(kind), year) for name, (kind, year) in years.items()})
assert years == {"day": (pa.int64(), 20599), "moment": (pa.int64(), 32103)}
PYTHON
