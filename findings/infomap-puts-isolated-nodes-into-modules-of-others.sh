#!/usr/bin/env bash
# Infomap puts a node without links into the module of nodes that it has no path to. With two triangles and one isolated
# node, that node belongs to a triangle; with three of them, two have modules of their own and one belongs to a
# triangle.
#
# Needs: python3, PyPI; infomap==2.16.0 in a temporary venv. Seen: that. Guess before the run: each isolated node is a
# module of its own, as of Louvain and Leiden.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check infomap==2.16.0
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
from importlib.metadata import version

import infomap

print("infomap", version("infomap"))
seen = {}
for isolated in (1, 3):
    for directed in (False, True):
        model = infomap.Infomap("--silent --seed 1" + (" --directed" if directed else ""))
        model.add_links([(0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 3), (2, 3)])
        for node in range(6, 6 + isolated):
            model.add_node(node)
        modules = dict(model.run().modules())
        shared = [node for node in range(6, 6 + isolated) if modules[node] in {modules[n] for n in range(6)}]
        print(isolated, "isolated,", "directed" if directed else "undirected", modules, "in a triangle's:", shared)
        seen[isolated, directed] = len(shared)
assert seen[1, False] == seen[1, True] == 1 and seen[3, False] == 1
PYTHON
