#!/usr/bin/env bash
# Raphtory takes an integer time for milliseconds and a float for seconds: the same number of seconds since 1970 is in
# January 1970 as an integer and in 2020 as a float. A column of seconds that becomes float, as pandas makes it beside a
# missing value, is a thousand times as large, and windows that ints name hold other edges than those that floats name.
#
# Needs: python3, PyPI; raphtory==0.17.0 in a temporary venv. Seen: that.
# Expected, though not written down before: 1577836800 and
# 1577836800.0 are one time.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check raphtory==0.17.0
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
from importlib.metadata import version

from raphtory import Graph

print("raphtory", version("raphtory"))
graph = Graph()
for time, pair in ((1577836800, (1, 2)), (1577836800.0, (2, 3)), ("2020-01-01", (3, 4))):
    graph.add_edge(time, *pair)
    print(repr(time), "is", graph.edge(*pair).earliest_time.t)
kept = {repr(start): graph.after(start).count_edges() for start in (1577836799, 1577836799.0)}
print("edges after a time:", kept)
assert [graph.edge(node, node + 1).earliest_time.t for node in (1, 2, 3)] == [1577836800, 1577836800000, 1577836800000]
assert kept == {"1577836799": 3, "1577836799.0": 2}
PYTHON
