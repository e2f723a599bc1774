#!/usr/bin/env bash
# Lance's update() and merge_insert() move the rows that they change behind all others: to_table() and take() then give
# rows of other places, so arrays that were in the order of the rows, such as ids of edges or labels, belong to others.
#
# Needs: python3, PyPI; pylance==14.0.2 pyarrow==26.0.1 in a temporary venv. Seen: those. Guess before the run: an update
# of a value leaves the row where it is.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check pylance==14.0.2 pyarrow==26.0.1
cd "$work"
venv/bin/python - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import lance
import pyarrow as pa

print("pylance", lance.__version__, "pyarrow", pa.__version__)
dataset = lance.write_dataset(pa.table({"id": range(5), "x": [0.0, 1.0, 2.0, 3.0, 4.0]}), "rows.lance")
orders = {}
dataset.update({"x": "10.0"}, where="id = 1")
orders["update of 1"] = dataset.to_table()["id"].to_pylist()
dataset.merge_insert("id").when_matched_update_all().execute(pa.table({"id": [2], "x": [9.0]}))
orders["merge of 2"] = dataset.to_table()["id"].to_pylist()
print("ids in the order of the rows after", orders, "take([1])", dataset.take([1])["id"].to_pylist())
assert orders == {"update of 1": [0, 2, 3, 4, 1], "merge of 2": [0, 3, 4, 1, 2]}
assert dataset.take([1])["id"].to_pylist() == [3]
PYTHON
