#!/usr/bin/env bash
# The same set-up as launch/quickstart.sh, then every test: C++ by ctest, Python by pytest; with a GPU the GPU tests too.
# Without a GPU, CUDA code is compiled to PTX only.
#
#   bash tests/run.sh [--all] [arguments of pytest]
#
# --all, for the night: every random repetition, all seeds of accuracy, slow variants of runs, the pages of docs/ with
# the sizes that they name, machine code for sm_80 and sm_90, a wheel, each program in an interpreter of its own
# (tests/warm.py), and the C++ tests once more under sanitizers (presets asan and tsan).
# Exit status 0 only when both runners ran and nothing failed. COHORT_PYTHON as in launch/quickstart.sh.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../launch/setup/setup.sh"

targets=all
presets=()
export without_gpu=90-virtual # PTX: nothing here runs the kernels, and their machine code takes longest to compile
export together=ON # without a GPU nothing is timed, and libraries compile in half the time
if [[ ${1:-} == --all ]]; then
  shift
  together=OFF
  targets="all gpu_checks"
  presets=(asan tsan)
  without_gpu=90
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

cpp_tests=(env "GTEST_OUTPUT=xml:$results/cpp/" ctest --test-dir "$build" --no-tests=error --output-on-failure)

# run_pytest LABEL OPTIONS...: status 5 is that of no test with this label among those chosen
run_pytest() {
  local label=$1 status=0
  shift
  say "Python tests, label $label"
  "$python" -m pytest -p no:cacheprovider --junitxml="$results/pytest_$label.xml" "$@" || status=$?
  ((status == 0 || status == 5)) || failed+=("pytest $label")
}

build_preset() {
  cmake --preset "$1" "-DPython_EXECUTABLE=$python" && cmake --build --preset "$1" --parallel "$(nproc)"
}

# run_preset PRESET: C++ tests in a build of their own
run_preset() {
  if [[ $1 == tsan ]] && ! { command -v clang++ && compgen -G "/usr/lib/llvm*/lib/libarcher.so"; } >/dev/null; then
    not_run+=("preset tsan: apt-get install clang libomp-dev")
    return
  fi
  say "C++ tests, preset $1 (log of its build: $logs/preset_$1.log)"
  if ! build_preset "$1" >"$logs/preset_$1.log" 2>&1; then
    tail -n 25 "$logs/preset_$1.log"
    failed+=("build of preset $1")
    return
  fi
  mkdir "$results/cpp_$1"
  GTEST_OUTPUT="xml:$results/cpp_$1/" ctest --preset "$1" --parallel "$(nproc)" --no-tests=error || failed+=("ctest --preset $1")
}

not_run=()
say "C++ tests beside the Python tests, which wait for much"
"${cpp_tests[@]}" -L '^cpu$' --output-junit "$results/ctest_cpu.xml" >"$logs/ctest_cpu.log" 2>&1 &
cpp=$!
trap 'kill $cpp 2>/dev/null || true; rm -rf "$results"' EXIT
run_pytest cpu -n "$(($(nproc) < 8 ? $(nproc) + 4 : 8))" --dist loadfile \
  --no-loadscope-reorder -m "not gpu" "$@"
wait $cpp || failed+=("ctest cpu")
trap 'rm -rf "$results"' EXIT
cat "$logs/ctest_cpu.log"
if [[ $has_gpu == yes && $with_cuda == yes ]]; then
  say "C++ tests, label gpu"
  "${cpp_tests[@]}" -L '^gpu$' --output-junit "$results/ctest_gpu.xml" || failed+=("ctest gpu")
  run_pytest gpu -n "$(gpu_workers)" --dist worksteal -m "gpu and not alone" "$@"
  run_pytest gpu_alone -m "gpu and alone" "$@"
else
  not_run+=("GPU tests (no GPU, or a build without CUDA): pytest -m gpu, ctest -L gpu")
fi
for preset in "${presets[@]}"; do run_preset "$preset"; done

"$python" tests/total.py "$results" "${failed[@]/#/failed=}" "${not_run[@]/#/not_run=}"
