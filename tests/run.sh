#!/usr/bin/env bash
# The same set-up as launch/quickstart.sh, then every test: C++ by ctest, Python by pytest; with a GPU the GPU tests too.
#
#   bash tests/run.sh [arguments of pytest]
#
# Exit status 0 only when both runners ran and nothing failed. COHORT_PYTHON as in launch/quickstart.sh.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../launch/setup/setup.sh"

cohort_setup all project build test
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

run_ctest cpu "$(nproc)"
pytest_choice=()
not_run=()
if [[ $has_gpu == yes && $with_cuda == yes ]]; then
  run_ctest gpu 1
else
  pytest_choice=(-m "not gpu")
  not_run=("GPU tests (no GPU, or a build without CUDA): pytest -m gpu, ctest -L gpu")
fi

say "Python tests ${pytest_choice[*]}"
"$python" -m pytest -p no:cacheprovider --junitxml="$results/pytest.xml" "${pytest_choice[@]}" "$@" || failed+=(pytest)

"$python" tests/total.py "$results" "${failed[@]/#/failed=}" "${not_run[@]/#/not_run=}"
