#!/usr/bin/env bash
# pyorc takes integers that do not fit into the type of the column: a tinyint of 200 is -56, silently. In columns of
# smallint and int it writes the whole number and reads it again, so that nothing tells; pyarrow, which goes by the
# type, has other ids. A struct with ids of more than 2^31 needs bigint.
#
# Needs: python3, PyPI; pyorc==0.12.0 pyarrow==26.0.1 in a temporary venv. Seen: those. Guess before the run: an error.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check pyorc==0.12.0 pyarrow==26.0.1
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
from importlib.metadata import version
from pathlib import Path

import pyorc
from pyarrow import orc

print("pyorc", version("pyorc"), "pyarrow", version("pyarrow"))
seen = {}
for kind, ids in {"tinyint": [7, 200], "smallint": [7, 40_000], "int": [7, 3_000_000_000, 2**32 + 7]}.items():
    with Path("ids.orc").open("wb") as file, pyorc.Writer(file, f"struct<id:{kind}>") as writer:
        writer.writerows([(number,) for number in ids])
    with Path("ids.orc").open("rb") as file:
        own = [row[0] for row in pyorc.Reader(file)]
    column = orc.read_table("ids.orc")["id"]
    seen[kind] = own, column.to_pylist()
    print(kind, "written", ids, "read by pyorc", own, "by pyarrow", column.type, column.to_pylist())
assert seen["tinyint"] == ([7, -56], [7, -56]) and seen["smallint"] == ([7, 40_000], [7, -25_536])
assert seen["int"] == ([7, 3_000_000_000, 2**32 + 7], [7, -1_294_967_296, 7])
PYTHON
