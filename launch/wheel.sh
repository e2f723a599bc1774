#!/usr/bin/env bash
# Builds wheels of this checkout that need no compiler and no library of the system where they are installed.
#
#   bash launch/wheel.sh [--out FOLDER] [--machine x86_64|aarch64] [PYTHON ...]
#
# PYTHON: the interpreters to build for, each with its headers (default: that of the set-up). For Python 3.12 the wheel
# has the stable ABI, and is one for all later versions; Python 3.11 needs one of its own. FOLDER: dist by default.
# --machine: what to build for (default: this machine). Another one needs its compiler (g++-aarch64-linux-gnu), and gets
# the CPU code alone; PYTHON is of this one, whose headers differ in nothing that a module uses.
#
# A wheel has the CPU and the CUDA code, with machine code for compute capability 8.0, 9.0, 10.0 and 12.0, and PTX for
# GPUs that none of these fits; COHORT_CUDA_ARCHITECTURES changes this, and COHORT_CUDA=OFF leaves out the CUDA code. It
# runs on systems with glibc 2.28 or newer: it is linked with the libraries of Debian 11, which come from the archive that
# this Debian's apt uses (launch/setup/old_system.sh), and cmake/old_glibc.cc. COHORT_PYTHON as in launch/quickstart.sh.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup/setup.sh"

# arguments WORD...: leaves $out and $interpreters; relative paths are those of the caller's folder.
arguments() {
  local program
  out=$root/dist machine=$(uname -m)
  interpreters=()
  while (($#)); do
    case $1 in
      --machine)
        (($# > 1)) && [[ $2 =~ ^(x86_64|aarch64)$ ]] || stop "--machine: expected x86_64 or aarch64, found ${2-nothing}"
        machine=$2; shift 2 ;;
      --out) (($# > 1)) || stop "--out: expected a folder, found nothing"; out=$(realpath -m -- "$2"); shift 2 ;;
      -*) stop "unknown option: $1" "bash launch/wheel.sh [--out FOLDER] [--machine x86_64|aarch64] [PYTHON ...]" ;;
      *)
        program=$(command -v -- "$1") || stop "$1 is not a program" "name an interpreter: python3.12, or its path"
        interpreters+=("$(realpath -s -- "$program")")
        shift ;;
    esac
  done
}

requirements() { "$1" "$root/launch/setup/requirements.py" "$2" build; }

# has_tools PYTHON: true when this interpreter has all that builds a wheel.
has_tools() {
  local lacking
  lacking=$(requirements "$1" missing 2>/dev/null) && [[ -z $lacking ]]
}

# build_tools PYTHON TAG: leaves in $tools the interpreter that builds for PYTHON: itself, or that of an environment.
build_tools() {
  local list
  tools=$1
  has_tools "$tools" && return
  tools=$build/wheel/$2/venv/bin/python
  has_tools "$tools" && return
  mapfile -t list < <(requirements "$python" list)
  step "venv_$2" "making an environment to build with $1" "check that $1 has the modules venv and ensurepip" \
    "$1" -m venv --clear "$build/wheel/$2/venv"
  step "pip_$2" "installing ${list[*]} into it" "check the network" \
    "$tools" -m pip install --disable-pip-version-check --no-input "${list[@]}"
}

# get_old_system: leaves in $system the folder of libraries that wheels are linked with.
get_old_system() {
  system=$build/wheel/system-$machine
  [[ -e $system/complete ]] || step "system_$machine" "getting the libraries of Debian 11, and METIS" "see the end of the log" \
    bash "$root/launch/setup/old_system.sh" "$system" "$machine"
}

# set_settings PYTHON: leaves in $settings those of CMake, in words without blanks, and in $variables those of the environment.
set_settings() {
  local libraries=$system/usr/lib/$machine-linux-gnu version header
  settings=(COHORT_OLD_SYSTEM="$system" OpenMP_gomp_LIBRARY="$libraries/libgomp.so.1"
    COHORT_METIS_INCLUDE="$system/metis" COHORT_METIS_LIBRARY="$system/metis/libmetis.a")
  variables=()
  [[ $machine != "$(uname -m)" ]] || return 0
  settings+=(CMAKE_SYSTEM_NAME=Linux CMAKE_SYSTEM_PROCESSOR="$machine" CMAKE_CXX_COMPILER="$machine-linux-gnu-g++"
    CMAKE_CROSSCOMPILING_EMULATOR=/usr/bin/env fmt_DIR="/usr/lib/$(uname -m)-linux-gnu/cmake/fmt") # env: Python is of this one
  read -r version header < <("$1" -c 'import sys, sysconfig; print("%d.%d" % sys.version_info[:2], sysconfig.get_config_h_filename())')
  mkdir -p "$system/python/$machine-linux-gnu" # where Debian's Python.h looks for the header of this machine
  ln -sfn "$(dirname "$header")" "$system/python/$machine-linux-gnu/python$version"
  variables=(_PYTHON_HOST_PLATFORM="linux-$machine" SETUPTOOLS_EXT_SUFFIX=".cpython-${version/./}-$machine-linux-gnu.so"
    CXXFLAGS="-idirafter $system/python")
}

# strangers FOLDER: the symbols of modules below it that no library of the older system has, nor Python: a linker lets
# modules have such symbols, and gives them no version that auditwheel could find too new.
strangers() {
  find "$1" -name '_native*.so' -exec nm -D --undefined-only {} + | sed -nE 's/^ +U ([^@]+)$/\1/p' |
    grep -vE '^_?Py' | sort -u || true
}

# build_wheel PYTHON: one wheel in $out.
build_wheel() {
  local tag folder unknown wheel jobs=${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}
  tag=$("$1" -c 'import sys; assert sys.version_info >= (3, 11); print("cp%d%d" % sys.version_info[:2])' 2>/dev/null) ||
    stop "$1 is no Python 3.11 or newer" "name another interpreter"
  [[ $with_cuda == yes ]] || tag+=_cpu
  [[ $machine == "$(uname -m)" ]] || tag+=_$machine
  set_settings "$1"
  build_tools "$1" "$tag"
  folder=$build/wheel/$tag
  rm -rf "$folder/plain"
  step "wheel_$tag" "building a wheel with $1 (minutes)" "see the first error in the log" \
    env PATH="$(dirname "$tools"):$PATH" CMAKE_BUILD_PARALLEL_LEVEL="$jobs" CMAKE_ARGS="${settings[*]/#/-D}" \
    "${variables[@]}" "$tools" -m pip wheel \
    --disable-pip-version-check --no-build-isolation --no-deps --config-settings=build-dir="$folder/build" \
    --wheel-dir "$folder/plain" "$root"
  unknown=$(strangers "$folder/build")
  [[ -z $unknown ]] || stop "older systems lack what the modules use: ${unknown//$'\n'/, }" "add it to cmake/old_glibc.cc"
  step "repair_$tag" "putting the OpenMP library into it" "see in the log which library is not found" \
    env LD_LIBRARY_PATH="$system/bundled" \
    "$python" -m auditwheel repair --plat auto --wheel-dir "$out" "$folder"/plain/*.whl
  wheel=$(sed -n 's/^Fixed-up wheel written to //p' "$logs/repair_$tag.log")
  [[ $wheel == *manylinux_2_28_$machine.whl ]] ||
    stop "$wheel needs a newer glibc than 2.28" "auditwheel -v show says why; add the symbols to cmake/old_glibc.cc"
}

arguments "$@"
[[ $machine == "$(uname -m)" || ${COHORT_CUDA:-} == OFF ]] ||
  stop "CUDA code is compiled for this machine alone, not for $machine" "leave it out: COHORT_CUDA=OFF"
: "${COHORT_CUDA_ARCHITECTURES:=80-real;90;100-real;120-real}"
cohort_tools build wheel
[[ $with_cuda == yes || ${COHORT_CUDA:-} == OFF ]] ||
  stop "no CUDA compiler for the CUDA code of the wheel" "install the CUDA Toolkit 13" "or leave it out: COHORT_CUDA=OFF"
get_old_system
if [[ $with_cuda == yes ]]; then
  export COHORT_CUDA=ON CUDACXX=$nvcc COHORT_CUDA_ARCHITECTURES
fi
((${#interpreters[@]})) || interpreters=("$python")
export CXX=${CXX:-c++} # by this name ccache knows the objects of build/
mkdir -p "$out"
for interpreter in "${interpreters[@]}"; do
  build_wheel "$interpreter"
done
say "wheels in $out:"
(cd "$out" && ls -sh1 -- cohort_gnn-*.whl)
