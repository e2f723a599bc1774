#!/usr/bin/env bash
# Everything that needs a GPU, in one go: build, tests, sanitizer, digests CPU against GPU, timed epochs; a table last.
#
#   bash tests/gpu.sh [STAGE...]      stages: test pytest sanitize digest epoch environments (default: all)
#
# COHORT_PYTHON as in tests/run.sh. COHORT_DATA=FOLDER of imported data sets joins the digests; files
# digest-NAME-FANOUT.txt beside it, if any, hold lines computed elsewhere that must come out again. OUT=FOLDER gets the logs.
set -uo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../launch/setup/setup.sh"
stages=("$@")
((${#stages[@]})) || stages=(test pytest sanitize digest epoch environments)
out=${OUT:-$build/gpu}
mkdir -p "$out"
set -e
cohort_setup all project build test
unlock_checkout
set +e
cd "$root"
export PATH=$build/bin:$PATH PYTHONPATH=$build/python${PYTHONPATH:+:$PYTHONPATH} COHORT_BUILD=$build
bench_graph=${TMPDIR:-/tmp}/cohort-bench-graph
num_gpus=$(nvidia-smi --query-gpu=name --format=csv,noheader | wc -l)
table=()

# row NAME STATUS TEXT: a line of the table, with the seconds since the line before
row() { table+=("$(printf '%-34s %-6s %5d s  %s' "$1" "$([[ $2 == 0 ]] && echo ok || echo FAILED)" $((SECONDS - last)) "$3")"); last=$SECONDS; [[ $2 == 0 ]] || failed=1; }
failed=0
last=$SECONDS

make_bench_graph() {
  [[ -f $bench_graph/meta.json ]] && return
  cohort dataset generate "$bench_graph" --kind powerlaw --nodes 2.4M --edges 124M --dim 100 --dtype float32 \
    --classes 47 --seed 0 --split-ratio 0.08,0.02,0.02
  row "generate 2.4 M nodes, 124 M edges" $? ""
}

stage_test() {
  ctest --test-dir "$build" --output-on-failure >"$out/ctest.log" 2>&1
  row "C++ tests" $? "$(grep -E 'tests passed' "$out/ctest.log")"
}

stage_pytest() {
  "$python" -m pytest -p no:cacheprovider -q -n "$(gpu_workers)" --dist worksteal -m "gpu and not alone" \
    >"$out/pytest.log" 2>&1
  row "Python tests, gpu" $? "$(tail -1 "$out/pytest.log")"
  "$python" -m pytest -p no:cacheprovider -q -m "gpu and alone" >"$out/pytest-alone.log" 2>&1
  row "Python tests, gpu, alone" $? "$(tail -1 "$out/pytest-alone.log")"
}

# sanitize TOOL PROGRAM [TESTS]: the GPU tests of PROGRAM, in shards side by side; fails when one shard does
sanitize() {
  local shard shards=6 pids=() status=0 log=$out/sanitize-$1-$2
  for ((shard = 0; shard < shards; ++shard)); do
    CUDA_VISIBLE_DEVICES=$((shard % num_gpus)) OMP_NUM_THREADS=1 GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$shard \
      compute-sanitizer --tool "$1" --require-cuda-init no --report-api-errors no --error-exitcode 9 \
      "$build/$2/$2_test" --gtest_filter="${3:-*Gpu*}" >"$log-$shard.log" 2>&1 &
    pids+=($!)
  done
  for shard in "${pids[@]}"; do wait "$shard" || status=1; done
  row "compute-sanitizer $1 $2" $status "$(cat "$log"-*.log | grep -hE 'ERROR SUMMARY|RACECHECK SUMMARY' | sort | uniq -c | tr -s ' ' | tr '\n' ';')"
}

stage_sanitize() {
  local tool program
  for tool in memcheck racecheck; do
    for program in base sampler trainer; do sanitize $tool $program; done
  done
  sanitize memcheck cache
  # Decoding tables of every codec under racecheck takes more than 256 GB of host memory; one table of the same kernels does not.
  sanitize racecheck cache '*Gpu*-GpuDecodeRows.Gives*'
  sanitize memcheck ibp
  # Each kernel and codec once: all would take half an hour.
  sanitize racecheck ibp 'GpuRows.*_mixed:GpuGather.ABad*:GpuGather.Dam*:GpuGather.RowsThat*:GpuGather.Can*:GpuTable.*:GpuEncode.Into*'
}

# compare_digests FOLDER FANOUT BATCH_SIZE: CPU lines against GPU lines, and against carried ones
compare_digests() {
  local name=${1##*/} lines=$out/digest-${1##*/}-$2
  cohort digest "$1" --device cuda --batches 4 --fanout "$2" --batch-size "$3" --seed 7 >"$lines-cuda.txt" 2>>"$out/digest.log"
  cohort digest "$1" --device cpu --batches 4 --fanout "$2" --batch-size "$3" --seed 7 >"$lines-cpu.txt" 2>>"$out/digest.log"
  cmp "$lines-cuda.txt" "$lines-cpu.txt" && [[ -s $lines-cpu.txt ]]
  row "digest $name $2" $? "$(wc -l <"$lines-cuda.txt") batches, CPU against GPU"
  if ((num_gpus >= 2)); then
    cohort digest "$1" --device cuda --gpus 0,1 --batches 4 --fanout "$2" --batch-size "$3" --seed 7 >"$lines-cuda2.txt" 2>>"$out/digest.log"
    cmp "$lines-cuda2.txt" "$lines-cpu.txt"
    row "digest $name $2" $? "CPU against 2 GPUs"
  fi
  local carried=${COHORT_DATA:-.}/../digest-$name-$2.txt
  [[ -f $carried ]] || return 0
  cmp "$carried" "$lines-cuda.txt"
  row "digest $name $2" $? "against lines computed elsewhere"
}

stage_digest() {
  local folder fanout
  make_bench_graph
  for fanout in 25,10 15,10,5; do
    for folder in ${COHORT_DATA:+"$COHORT_DATA"/*}; do compare_digests "$folder" $fanout 1000; done
    compare_digests "$bench_graph" $fanout 8192
  done
}

stage_epoch() {
  local mode run
  make_bench_graph
  local modes=("" --no-mps --cache-ratio=1.1 --no-reuse)
  ((num_gpus >= 2)) && modes+=("--gpus=0,1")
  for mode in "${modes[@]}"; do
    run=$out/epoch${mode// /}
    cohort train "$bench_graph" --device cuda --fanout 25,10 --batch-size 8192 --hidden 256 --epochs 4 --overwrite --out "$run" $mode \
      >"$run.log" 2>&1
    row "train, SAGE 256 ${mode:-with MPS}" $? "$("$python" bench/epoch_line.py "$run/summary.json")"
  done
}

stage_environments() {
  "$python" tests/environments.py --out "$out/environments" >"$out/environments.log" 2>&1
  row "environments" $? "$(grep -c '  ok: ' "$out/environments.log") ok, $(grep -c ' refused: ' "$out/environments.log") refused with a cure, $(grep -c FAILED "$out/environments.log") failed"
}

for stage in "${stages[@]}"; do
  say "stage $stage"
  "stage_$stage"
done
printf '\n%s\n' "$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader)"
printf '%s\n' "${table[@]}"
exit $failed
