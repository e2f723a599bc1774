#!/usr/bin/env bash
# GraphBolt's layer sampling draws each edge equally often, but not each subset: the random numbers of nodes depend on
# each other a little. Of 11 edges, 4 are drawn: the frequencies of the 330 subsets are off by about 3 %.
#
# Needs: python3, PyPI; dgl==2.1.0 torch==2.2.1 in a temporary venv (5 GB). Seen: dgl 2.1.0, torch 2.2.1. Guess before
# the run: draws from one list are uniform over the subsets, as those of sample_neighbors are.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check \
  dgl==2.1.0 torch==2.2.1 torchdata==0.7.1 numpy==1.26.4 pydantic pyyaml pandas
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
from collections import Counter

import dgl
import dgl.graphbolt as gb
import torch

print("dgl", dgl.__version__, "torch", torch.__version__)
gb.seed(1)
graph = gb.fused_csc_sampling_graph(torch.tensor([0] * 12 + [11]), torch.arange(11))
draws, node, fanout = 200_000, torch.tensor([11]), torch.tensor([4])


def chi_square(counts, kinds):
    expected = sum(counts) / kinds
    return sum((count - expected) ** 2 for count in counts) / expected + (kinds - len(counts)) * expected


found = {}
for method in ("sample_neighbors", "sample_layer_neighbors"):
    draw, subsets, edges = getattr(graph, method), Counter(), Counter()
    for _ in range(draws):
        drawn = sorted(draw(node, fanout).sampled_csc.indices.tolist())
        subsets[tuple(drawn)] += 1
        edges.update(drawn)
    found[method] = chi_square(subsets.values(), 330)
    of_edges = chi_square(edges.values(), 11)
    print(f"{method}: chi square of edges {of_edges:.1f}, 10 degrees of freedom; of subsets {found[method]:.1f}, 329")
    assert of_edges < 51.6  # 1e-6
assert found["sample_neighbors"] < 466 < found["sample_layer_neighbors"]  # 1e-6
PYTHON
