#!/usr/bin/env bash
# networkx.write_edgelist writes ids that contain # as they are, and read_edgelist takes what follows a # anywhere in
# a line as a comment: such edges are gone without an error, or become edges to another node.
#
# Needs: python3, PyPI; networkx==3.6.1 in a temporary venv. Seen: networkx 3.6.1. Guess before the run: only lines
# that begin with # are comments, or the writer quotes.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check networkx==3.6.1
cd "$work"
venv/bin/python - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import networkx as nx

print("networkx", nx.__version__)
graph = nx.Graph([("a#1", "b"), ("c", "d#2"), ("e", "f")])
nx.write_edgelist(graph, "g.txt", data=False)
found = nx.read_edgelist("g.txt")
print(f"written: {sorted(graph.edges)}, read: {sorted(found.edges)}")
assert sorted(found.edges) == [("c", "d"), ("e", "f")]
PYTHON
