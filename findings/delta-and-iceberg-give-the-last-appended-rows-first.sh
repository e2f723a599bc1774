#!/usr/bin/env bash
# Tables of Delta Lake and Iceberg are read with the rows of the last append first: features of nodes that were written
# in five appends, without a column of ids, come in another order than the nodes.
#
# Needs: python3, PyPI; deltalake==1.6.6 pyiceberg==0.12.0 pyarrow==26.0.1 in a temporary venv. Seen: these. Guess before
# the run: the order of the appends.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check deltalake==1.6.6 pyarrow==26.0.1 \
  'pyiceberg[sql-sqlite,pyarrow]==0.12.0'
cd "$work"
venv/bin/python - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import os
import warnings

import deltalake
import pyarrow as pa
import pyiceberg

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from pyiceberg.catalog.sql import SqlCatalog

    os.mkdir("iceberg")
    catalog = SqlCatalog("catalog", uri="sqlite:///iceberg/catalog.db", warehouse=f"file://{os.getcwd()}/iceberg")
    catalog.create_namespace("graph")
    iceberg = catalog.create_table("graph.nodes", schema=pa.schema({"row": pa.int64()}))
    for append in range(5):
        rows = pa.table({"row": pa.array([2 * append, 2 * append + 1], pa.int64())})
        deltalake.write_deltalake("delta", rows, mode="append")
        iceberg.append(rows)
    found = {
        "delta": deltalake.DeltaTable("delta").to_pyarrow_dataset().to_table()["row"].to_pylist(),
        "iceberg": iceberg.scan().to_arrow_batch_reader().read_all()["row"].to_pylist(),
    }
print("deltalake", deltalake.__version__, "pyiceberg", pyiceberg.__version__)
print(found)
assert set(map(tuple, found.values())) == {(8, 9, 6, 7, 4, 5, 2, 3, 0, 1)}
PYTHON
