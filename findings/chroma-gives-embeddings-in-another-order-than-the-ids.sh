#!/usr/bin/env bash
# Chroma's get(ids=...) gives embeddings in the order in which they were added, not in that of the ids: rows for a batch
# belong to other nodes unless they are sorted by the ids that come with them. add() of an id that is there leaves the
# old embedding, without a word; so does update() of one that is not.
#
# Needs: python3, PyPI; chromadb==1.5.9 numpy==2.4.6 in a temporary venv. Seen: those. Guess before the run: the order
# of the ids, and an error for an id that is there.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check chromadb==1.5.9 numpy==2.4.6
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
from importlib.metadata import version

import chromadb
import numpy as np

print("chromadb", version("chromadb"), "numpy", np.__version__)
client = chromadb.EphemeralClient(chromadb.Settings(anonymized_telemetry=False))
nodes = client.create_collection("nodes")
nodes.add(ids=["n3", "n1", "n2"], embeddings=[[3.0, 0.0], [1.0, 0.0], [2.0, 0.0]])
rows = nodes.get(ids=["n1", "n2", "n3"], include=["embeddings"])
print("asked for n1 n2 n3, got", rows["ids"], rows["embeddings"].tolist())
nodes.add(ids=["n1"], embeddings=[[9.0, 9.0]])
nodes.update(ids=["n4"], embeddings=[[9.0, 9.0]])
kept = nodes.get(ids=["n1"], include=["embeddings"])["embeddings"].tolist()
print("n1 after add() of [9, 9]:", kept, "nodes after update() of n4:", nodes.count())
assert rows["ids"] == ["n3", "n1", "n2"] and kept == [[1, 0]] and nodes.count() == 3
PYTHON
