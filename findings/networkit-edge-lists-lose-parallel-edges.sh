#!/usr/bin/env bash
# NetworKit reads an edge list of text without its parallel edges: the first one stays with its weight, the others vanish
# without a word. Its graphs may have parallel edges, and its own writer writes both; loops stay, and so do parallel edges
# in its binary format and from a COO.
#
# Needs: python3, PyPI; networkit==11.3 in a temporary venv. Seen: networkit 11.3. Guess before the run: parallel edges
# stay, as in networkit.Graph.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check networkit==11.3
cd "$work"
venv/bin/python - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
from importlib.metadata import version

import networkit
from networkit import Format

print("networkit", version("networkit"))
with open("weighted.txt", "w") as file:
    file.write("0 1 0.5\n1 2 4\n0 1 2\n2 2 1\n")
read = list(networkit.readGraph("weighted.txt", Format.EdgeListSpaceZero, directed=True).iterEdgesWeights())
print("of four edges, two of them parallel:", read)
assert read == [(0, 1, 0.5), (1, 2, 4.0), (2, 2, 1.0)]
graph = networkit.Graph(2)
graph.addEdge(0, 1)
graph.addEdge(0, 1)
counts = {}
for name in ("EdgeListTabZero", "NetworkitBinary"):
    networkit.writeGraph(graph, name, getattr(Format, name))
    counts[name] = networkit.readGraph(name, getattr(Format, name)).numberOfEdges()
print("two parallel edges, written and read:", counts)
assert counts == {"EdgeListTabZero": 1, "NetworkitBinary": 2}
PYTHON
