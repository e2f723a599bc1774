#!/usr/bin/env bash
# leidenalg finds the communities of a weighted graph by its weights, but `modularity` and `q` of the partition that it
# returns are those of the graph without weights; `quality()` has the weights. igraph's own algorithms return partitions
# whose `modularity` has the weights. Runs with several seeds or resolutions that are compared by it keep the wrong one.
#
# Needs: python3, PyPI; leidenalg==0.12.0 igraph==1.0.0 in a temporary venv. Seen: those.
# Expected, though not written down before:
# `modularity` is that of the weighted graph, as in igraph.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check leidenalg==0.12.0 igraph==1.0.0
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import igraph
import leidenalg

print("leidenalg", leidenalg.version, "igraph", igraph.__version__)
graph = igraph.Graph(n=6, edges=[(0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 3), (2, 3)])
weights = [1, 1, 1, 1, 1, 1, 20]
found = leidenalg.find_partition(graph, leidenalg.ModularityVertexPartition, weights=weights, seed=1)
other = graph.community_multilevel(weights=weights)
weighted = graph.modularity(found.membership, weights=weights)
plain = graph.modularity(found.membership)
print("modularity with weights", round(weighted, 4), "without", round(plain, 4))
print("leidenalg: modularity", round(found.modularity, 4), "q", round(found.q, 4), "quality", round(found.quality(), 4))
print("igraph's multilevel: modularity", round(other.modularity, 4))
assert abs(weighted - plain) > 0.03 and abs(found.quality() - weighted) < 1e-9
assert abs(found.modularity - plain) < 1e-9 and abs(found.q - plain) < 1e-9
assert abs(other.modularity - graph.modularity(other.membership, weights=weights)) < 1e-9
PYTHON
