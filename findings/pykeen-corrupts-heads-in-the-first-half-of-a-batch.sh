#!/usr/bin/env bash
# PyKEEN's BasicNegativeSampler replaces heads in the first half of a batch and tails in the second, although it says
# that it determines "randomly (uniformly)" what is corrupted: of a triple with 100 negatives all have another head, or
# all another tail, by its place in the batch, a batch of one triple and one negative never has another tail, and in
# batches that are not shuffled each triple has the same side in all epochs. BernoulliNegativeSampler draws the side for
# each negative.
#
# Needs: python3, PyPI; pykeen==1.11.1 torch==2.15.0 numpy==2.4.6 in a temporary venv (5 GB). Seen: those. Guess before
# the run: about half of the negatives of each triple have another head.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check pykeen==1.11.1 torch==2.15.0 numpy==2.4.6
cd "$work"
export PYKEEN_HOME=$work/pykeen
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
from importlib.metadata import version

import torch
from pykeen.sampling import BasicNegativeSampler, BernoulliNegativeSampler

print("pykeen", version("pykeen"), "torch", torch.__version__)
triples = torch.tensor([[0, 0, 1], [1, 0, 2], [2, 0, 0], [3, 0, 1]])
options = {"mapped_triples": triples, "num_entities": 500, "num_relations": 1}
shares = {}
for kind in (BasicNegativeSampler, BernoulliNegativeSampler):
    negatives = kind(num_negs_per_pos=100, **options).corrupt_batch(triples)
    shares[kind.__name__] = (negatives[..., 0] != triples[:, None, 0]).float().mean(dim=1).tolist()
print("share of the negatives of each of four triples that have another head:", shares)
single = BasicNegativeSampler(num_negs_per_pos=1, **options)
tails = sum(int(single.corrupt_batch(triples[:1])[0, 0, 2] != 1) for _ in range(1000))
print("of 1,000 batches of one triple with one negative,", tails, "have another tail")
assert shares["BasicNegativeSampler"] == [1, 1, 0, 0] and tails == 0
assert all(0.1 < share < 0.9 for share in shares["BernoulliNegativeSampler"])
PYTHON
