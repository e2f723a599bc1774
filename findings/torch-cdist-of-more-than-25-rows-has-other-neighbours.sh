#!/usr/bin/env bash
# torch.cdist of more than 25 rows takes distances from products, |a|^2 - 2ab + |b|^2, and loses what is small beside the
# coordinates: of 1,000 places in a city, in degrees as float32, the nearest one is found for few, distances of different
# places are 0, and those of a place to itself are not. With 25 rows, or compute_mode="donot_use_mm_for_euclid_dist", they
# are right. https://docs.pytorch.org/docs/stable/generated/torch.cdist.html has the limit of 25, not what it costs.
#
# Needs: python3, PyPI; torch==2.15.0 numpy==2.4.6 scipy==1.17.1 in a temporary venv (5 GB). Seen: those. Guess before the
# run: the same distances for 25 rows and for 26, up to rounding.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check torch==2.15.0 numpy==2.4.6 scipy==1.17.1
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import torch
from scipy.spatial import cKDTree

print("torch", torch.__version__)
places = torch.tensor([48.1, 11.5]) + 0.1 * torch.rand(1000, 2, generator=torch.Generator().manual_seed(0))
_, nearest = cKDTree(places.double().numpy()).query(places.double().numpy(), k=2)
right = torch.from_numpy(nearest[:, 1])
shares = {}
for mode in ("use_mm_for_euclid_dist_if_necessary", "donot_use_mm_for_euclid_dist"):
    distances = torch.cdist(places, places, compute_mode=mode)
    shares[mode] = (distances.fill_diagonal_(torch.inf).argmin(dim=1) == right).double().mean().item()
print("share of places whose nearest is found, by default and without products:", shares)
few, more = torch.cdist(places[:25], places[:25]), torch.cdist(places[:26], places[:26])
print("largest difference between 25 and 26 rows:", (few - more[:25, :25]).abs().max().item(), "degrees")
assert shares["use_mm_for_euclid_dist_if_necessary"] < 0.5 and shares["donot_use_mm_for_euclid_dist"] > 0.99
assert (few - more[:25, :25]).abs().max() > 0.001
PYTHON
