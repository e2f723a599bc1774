#!/usr/bin/env bash
# GraphBolt's temporal sampling draws what is earlier than the seed: an edge, or a source, of the seed's own time is left
# out. PyG draws it. Times of edges and nodes may be floats, those of seeds must be int64.
#
# Needs: python3, PyPI; dgl==2.1.0 torch==2.2.1 in a temporary venv (5 GB). Seen: dgl 2.1.0, torch 2.2.1. Guess before
# the run: an edge of the seed's time is drawn, as in PyG, and float times are refused everywhere.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check \
  dgl==2.1.0 torch==2.2.1 torchdata==0.7.1 numpy==1.26.4 pydantic pyyaml pandas
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import dgl
import dgl.graphbolt as gb
import torch

print("dgl", dgl.__version__, "torch", torch.__version__)


def drawn(times, seed_time, of="edge"):
    """Of the sources 1, 2 and 3 of node 0, which have these times, or their edges."""
    attributes = {"edge": times, "node": torch.cat([times[:1] * 0, times])}
    graph = gb.fused_csc_sampling_graph(
        torch.tensor([0, 3, 3, 3, 3]), torch.tensor([1, 2, 3]), **{f"{of}_attributes": {"timestamp": attributes[of]}}
    )
    found = graph.temporal_sample_neighbors(
        torch.tensor([0]), seed_time, torch.tensor([-1]), **{f"{of}_timestamp_attr_name": "timestamp"}
    )
    return found.sampled_csc.indices.tolist()


for of in ("edge", "node"):
    found = drawn(torch.tensor([4, 5, 6]), torch.tensor([5]), of)
    print(f"times 4, 5 and 6 of each {of}, seed at 5: sources {found}")
    assert found == [1]
assert drawn(torch.tensor([4.5, 5.0, 5.5]), torch.tensor([5])) == [1]
try:
    drawn(torch.tensor([4.5, 5.0, 5.5]), torch.tensor([5.0]))
    raise SystemExit(1)
except RuntimeError as error:
    print("seed at 5.0:", str(error).splitlines()[0])
PYTHON
