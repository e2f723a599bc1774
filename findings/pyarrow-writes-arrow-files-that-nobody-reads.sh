#!/usr/bin/env bash
# A table that came through an Arrow stream in memory (what DuckDB, polars and pandas hand on) and has an empty chunk of
# texts among others is written to an Arrow file without an error, and the file cannot be read, by pyarrow or by polars.
#
# Needs: python3, PyPI; pyarrow==26.0.1 polars==2.1.0 in a temporary venv. Seen: those. Guess before the run: what is
# written is read.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check pyarrow==26.0.1 polars==2.1.0
cd "$work"
venv/bin/python - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import polars
import pyarrow as pa

print("pyarrow", pa.__version__, "polars", polars.__version__)
table = pa.table({"name": pa.chunked_array([["a"], [], ["b"]]), "value": [1.0, 2.0]})
rows = pa.RecordBatchReader.from_stream(table).read_all()
assert rows.equals(table)
rows.validate(full=True)
with pa.OSFile("rows.arrow", "wb") as file, pa.ipc.new_file(file, rows.schema) as writer:
    writer.write_table(rows)
for name, read in (
    ("pyarrow", lambda: pa.ipc.open_file("rows.arrow").read_all()),
    ("polars", lambda: polars.read_ipc("rows.arrow")),
):
    try:
        found = read()
    except (OSError, polars.exceptions.PolarsError) as error:
        print(f"{name}: {type(error).__name__}: {str(error)[:90]}")
    else:
        raise SystemExit(f"{name} reads {found}")
PYTHON
