#!/usr/bin/env bash
# pyarrow 18 cannot read some Parquet files of pyarrow 26 through a small buffer (of three files of one kind, two): the first
# row group is read, a loop over all of them ends in "Cannot shrink read buffer if buffered data remains". With the default
# buffer it reads them; 19.0.1 does with either.
#
# Needs: python3 (3.10 to 3.13), PyPI; pyarrow==26.0.1, 18.1.0 and 19.0.1 in temporary venvs. Seen: those, and 18.0.0.
# Guess before the run: the size of a buffer changes speed and memory alone.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
cat >"$work/write.py" <<'PYTHON'
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

numbers = np.random.default_rng(0).integers(8_000_000, size=2_500_000)
pq.write_table(pa.table({"src": numbers}), "numbers.parquet")
PYTHON
cat >"$work/read.py" <<'PYTHON'
import pyarrow as pa
import pyarrow.parquet as pq

print("pyarrow", pa.__version__)
for size in (1 << 16, 1 << 20):
    options = {"buffer_size": size, "pre_buffer": False}
    with pq.ParquetFile("numbers.parquet", **options) as file:
        first = file.read_row_group(0).num_rows
    with pq.ParquetFile("numbers.parquet", **options) as file:
        try:
            seen = sum(batch.num_rows for batch in file.iter_batches(1 << 17))
        except pa.ArrowInvalid as error:
            seen = str(error)
    print("buffer of", size, "bytes; first row group:", first, "all:", seen)
    fails = pa.__version__ == "18.1.0" and size == 1 << 16
    assert first == 1_048_576
    assert seen == ("Cannot shrink read buffer if buffered data remains" if fails else 2_500_000)
PYTHON
for version in 26.0.1 18.1.0 19.0.1; do
  python3 -m venv "$work/$version"
  "$work/$version/bin/python" -m pip install -q --disable-pip-version-check "pyarrow==$version" numpy==2.2.6
  script=$([[ $version == 26.0.1 ]] && echo write.py || echo read.py)
  (cd "$work" && "$version/bin/python" "$script") || { echo "the behaviour has changed"; exit 1; }
done
