#!/usr/bin/env bash
# From a fresh clone to a trained model: installs what is missing, builds, generates a small graph, trains on it.
#
#   bash launch/quickstart.sh [options of cohort train]
#
# COHORT_PYTHON=/path/to/python3 uses that interpreter and installs nothing. launch/setup/setup.sh has the steps.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup/setup.sh"

cohort_setup programs project build
cohort=$build/bin/cohort
data=$root/data/quickstart
device=cpu
[[ $has_gpu == no || $with_cuda == no ]] || device=cuda

if [[ -f $data/meta.json ]]; then
  say "data set: data/quickstart exists"
else
  rm -rf "$data" "$data.part"
  mkdir -p "$root/data"
  step generate "generating the data set data/quickstart: a graph of planted communities" \
    "the lines above are the command's own words; launch/ and dataset/ hold its code" \
    "$cohort" dataset generate "$data.part" --kind sbm --nodes 20000 --edges 300000 --dim 64 --classes 8 --seed 0
  mv -T "$data.part" "$data"
fi
unlock_checkout

run=$root/runs/quickstart-$(date +%Y%m%d-%H%M%S)-$$
mkdir -p "$root/runs"
say "training on the ${device/cuda/GPU}: build/bin/cohort train data/quickstart --device $device --epochs 5 --out ${run#"$root"/} $*"
exec "$cohort" train "$data" --device "$device" --epochs 5 --out "$run" "$@"
