#!/usr/bin/env bash
# A KeyedVectors of gensim, as of Word2Vec over random walks, takes an integer that is no key for a row: wv[0] of a
# graph whose node 0 has no walk, or was too rare for min_count, is the vector of the most frequent node, and `0 in
# wv` is true. Only ids beyond the number of rows are a KeyError.
#
# Needs: python3, PyPI; gensim==4.4.0 numpy==1.26.4 in a temporary venv. Seen: those. Guess before the run: KeyError,
# as of keys of text.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check gensim==4.4.0 numpy==1.26.4
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import gensim
import numpy as np
from gensim.models import KeyedVectors, Word2Vec

print("gensim", gensim.__version__, "numpy", np.__version__)
walks = [[5, 3, 4, 3, 5, 3]] * 20  # nodes 0, 1, 2 are isolated
vectors = Word2Vec(walks, vector_size=4, min_count=1, seed=1, workers=1).wv
print("nodes", vectors.index_to_key, "0 in wv", 0 in vectors, "vector of node 0", vectors[0], "of node 3", vectors[3])
assert vectors.index_to_key == [3, 5, 4] and 0 in vectors and np.array_equal(vectors[0], vectors[3])
try:
    vectors[7]
    raise SystemExit("7 is a key")
except KeyError as error:
    print("node 7:", error)
texts = KeyedVectors(2)
texts.add_vectors(["5", "3"], np.eye(2))
try:
    texts["0"]
    raise SystemExit("'0' is a key")
except KeyError:
    pass
PYTHON
