#!/usr/bin/env bash
# The same set-up as launch/quickstart.sh, then every test: C++ by ctest, Python by pytest; with a GPU the GPU tests too.
#
#   bash tests/run.sh [--all] [arguments of pytest]
#
# --all, for the night: every random repetition, all seeds of accuracy, slow variants of runs, the pages of docs/ with
# the sizes that they name, kernels for sm_80, a wheel, and each program in an interpreter of its own (tests/warm.py).
# Exit status 0 only when both runners ran and nothing failed. COHORT_PYTHON as in launch/quickstart.sh.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../launch/setup/setup.sh"

targets=all
if [[ ${1:-} == --all ]]; then
  shift
  targets="all gpu_checks"
  export COHORT_TESTS=all COHORT_TESTS_FRESH=1
fi
cohort_setup "$targets" project build test
build_without_cuda
unlock_checkout
cd "$root"
results=$(mktemp -d "$build/tests.XXXXXX")
trap 'rm -rf "$results"' EXIT
mkdir "$results/cpp"
export PATH=$build/bin:$PATH PYTHONPATH=$build/python${PYTHONPATH:+:$PYTHONPATH} COHORT_BUILD=$build
failed=()

# run_ctest LABEL JOBS
run_ctest() {
  say "C++ tests, label $1"
  GTEST_OUTPUT="xml:$results/cpp/" ctest --test-dir "$build" -L "^$1\$" --parallel "$2" --no-tests=error \
    --output-on-failure --output-junit "$results/ctest_$1.xml" || failed+=("ctest $1")
}

# run_pytest LABEL OPTIONS...: status 5 is that of no test with this label among those chosen
run_pytest() {
  local label=$1 status=0
  shift
  say "Python tests, label $label"
  "$python" -m pytest -p no:cacheprovider --junitxml="$results/pytest_$label.xml" "$@" || status=$?
  ((status == 0 || status == 5)) || failed+=("pytest $label")
}

run_ctest cpu "$(nproc)"
run_pytest cpu -n "$(($(nproc) < 8 ? $(nproc) + 2 : 8))" --dist loadfile \
  --no-loadscope-reorder -m "not gpu" "$@"
not_run=()
if [[ $has_gpu == yes && $with_cuda == yes ]]; then
  run_ctest gpu 1
  run_pytest gpu -n "$(gpu_workers)" --dist worksteal -m "gpu and not alone" "$@"
  run_pytest gpu_alone -m "gpu and alone" "$@"
else
  not_run=("GPU tests (no GPU, or a build without CUDA): pytest -m gpu, ctest -L gpu")
fi

"$python" tests/total.py "$results" "${failed[@]/#/failed=}" "${not_run[@]/#/not_run=}"
