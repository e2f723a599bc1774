# shellcheck shell=bash
# Sourced by launch/quickstart.sh, launch/wheel.sh and tests/run.sh: makes this checkout runnable and installs only what
# is missing.
#
#   cohort_setup TARGETS GROUP...  builds the CMake targets TARGETS; the interpreter has the requirement GROUPs
#   cohort_tools GROUP...          all of this except the build
#   unlock_checkout                ends the turn in this checkout that the two took
#
# Leaves behind: $root, $build, $python, $has_gpu and $with_cuda ("yes" or "no"), $nvcc, and PATH with the tools on it.
# Reads: COHORT_PYTHON (use this interpreter, install nothing), COHORT_CUDA=OFF (no CUDA code),
# COHORT_CUDA_ARCHITECTURES, CXX, CUDACXX, CUDA_HOME.

exec </dev/null
root=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
build=$root/build
without_cuda=$root/build-without-cuda
deps=$root/.deps
logs=$build/setup
all_groups=(project build wheel bench formats test docs style)

say() { printf 'cohort: %s\n' "$*"; }

# stop WHAT CURE...: the end of the set-up, with one line for each thing the user can do.
stop() {
  printf '\ncohort: stopped: %s\n' "$1" >&2
  shift
  (($# == 0)) || printf '  cure: %s\n' "$@" >&2
  exit 1
}

# step NAME WHAT CURE COMMAND...: runs a command into a log and shows the log's end when it fails.
step() {
  local status=0
  say "$2"
  "${@:4}" >"$logs/$1.log" 2>&1 || status=$?
  end_of_step "$status" "$@"
}

# end_of_step STATUS NAME WHAT CURE COMMAND...
end_of_step() {
  local status=$1 name=$2 what=$3 cure=$4 log=$logs/$2.log
  ((status)) || return 0
  shift 4
  printf '\ncohort: failed with exit status %s: %s\n' "$status" "$what" >&2
  printf '  command: %s\n  log: %s, which ends so:\n' "${*@Q}" "$log" >&2
  tail -n 25 "$log" | sed 's/^/    | /' >&2
  stop "$name did not succeed" "$cure" "then run this script again; it continues where it stopped"
}

# The checkout's folder itself is the lock, so that two set-ups in one checkout take turns.
lock_checkout() {
  command -v flock >/dev/null || stop "the program flock is missing" "apt-get install util-linux"
  exec 9<"$root"
  flock -n 9 && return
  say "another set-up of this checkout is running; waiting for it"
  flock 9
}

unlock_checkout() { exec 9<&-; }

# --- what the machine has -------------------------------------------------------------------------------------------

find_gpu() {
  local capability
  has_gpu=no
  if [[ ${CUDA_VISIBLE_DEVICES-all} =~ ^(-1)?$ ]]; then
    say "CUDA_VISIBLE_DEVICES hides every GPU: working on the CPU"
  elif ! command -v nvidia-smi >/dev/null || ! capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>&1); then
    say "no GPU found (nvidia-smi is missing or fails): working on the CPU"
  elif [[ $capability =~ ^[1-7]\. ]]; then
    say "the GPU has compute capability ${capability%%$'\n'*}; Cohort needs 8.0 or newer: working on the CPU"
  else
    has_gpu=yes
    say "GPU found (compute capability ${capability%%$'\n'*})"
  fi
}

# Workers of pytest for tests that share the GPUs.
gpu_workers() {
  local most=$((8 * $(nvidia-smi -L | wc -l)))
  echo $((most < $(nproc) ? most : $(nproc)))
}

# True when this CUDA compiler exists and is of a Toolkit that has all that is used: 12.5.
is_nvcc() {
  local text
  [[ -n $1 ]] && text=$("$1" --version 2>/dev/null) && [[ $text =~ release\ ([0-9]+)\.([0-9]+) ]] &&
    ((100 * BASH_REMATCH[1] + BASH_REMATCH[2] >= 1205))
}

find_nvcc() {
  local candidate
  nvcc=
  for candidate in "${CUDACXX:-}" nvcc "${CUDA_HOME:+$CUDA_HOME/bin/nvcc}" /usr/local/cuda/bin/nvcc \
    "$deps/cuda/nvidia/cu13/bin/nvcc"; do
    if is_nvcc "$candidate"; then
      nvcc=$(command -v "$candidate")
      return
    fi
  done
}

has_header() {
  [[ -e $deps/usr/include/$1 || -e /usr/include/$1 ]] ||
    printf '#include <%s>\n' "$1" | "${CXX:-c++}" -std=c++20 -E -x c++ - >/dev/null 2>&1
}

has_cxx20() {
  printf '#include <source_location>\n#include <omp.h>\nint main() { return std::source_location::current().line() == 0; }\n' |
    "${CXX:-c++}" -std=c++20 -fopenmp -x c++ - -o /dev/null 2>/dev/null
}

# True when this Python can make a virtual environment and compile extensions.
is_base_python() {
  "$1" - 2>/dev/null <<'PYTHON'
import ensurepip, os, sys, sysconfig, venv
sys.exit(sys.version_info < (3, 11) or not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))
PYTHON
}

find_base_python() {
  local candidate
  base_python=
  for candidate in python3 /usr/bin/python3 python3.13 python3.12 python3.11; do
    if command -v "$candidate" >/dev/null && is_base_python "$candidate"; then
      base_python=$(command -v "$candidate")
      return
    fi
  done
}

# --- system packages ------------------------------------------------------------------------------------------------

find_missing_packages() {
  missing=()
  has_cxx20 || missing+=(g++)
  has_header gtest/gtest.h || missing+=(libgtest-dev)
  has_header nlohmann/json.hpp || missing+=(nlohmann-json3-dev)
  has_header fmt/format.h || missing+=(libfmt-dev)
  [[ -n ${COHORT_PYTHON:-} ]] && return
  find_base_python
  [[ -n $base_python ]] || missing+=(python3 python3-venv python3-dev)
}

install_packages() {
  find_missing_packages
  ((${#missing[@]})) || { say "system packages: all installed"; return 0; }
  local line="apt-get update && apt-get install -y --no-install-recommends ${missing[*]}" as_root=()
  if [[ -n ${COHORT_PYTHON:-} ]]; then
    stop "system packages are missing: ${missing[*]} (nothing is installed with COHORT_PYTHON)" "$line" \
      "or, for the libraries, on any machine of the same distribution, then carry .deps here: mkdir -p '$deps' && cd '$deps' &&
        apt-get download ${missing[*]} libfmt9 libmetis-dev libmetis5 && for deb in *.deb; do dpkg -x \"\$deb\" .; done"
  fi
  command -v apt-get >/dev/null || stop "this system has no apt-get to install: ${missing[*]}" \
    "install the same libraries by its own package manager: a C++20 compiler, GoogleTest, nlohmann_json, fmt, Python 3.11 with headers"
  if [[ $(id -u) != 0 ]]; then
    sudo -n true 2>/dev/null || stop "system packages are missing: ${missing[*]}" "sudo sh -c '$line'"
    as_root=(sudo -n)
  fi
  step apt "installing system packages: ${missing[*]}" "look at the log; the line by hand is: $line" \
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive sh -ec \
    "apt-get update && apt-get install -y --no-install-recommends -o DPkg::Lock::Timeout=300 ${missing[*]}"
  find_missing_packages
  ((${#missing[@]} == 0)) || stop "still not usable after the installation: ${missing[*]}" \
    "unset CXX if it names an old compiler; Cohort needs g++ 12 or newer and Python 3.11 or newer"
}

# Wanted, but nothing stops without them: METIS (`cohort dataset partition` then has its other methods) and ccache.
install_optional() {
  local wanted=() as_root=()
  has_header metis.h || wanted+=(libmetis-dev)
  command -v ccache >/dev/null || wanted+=(ccache)
  ((${#wanted[@]})) || return 0
  if [[ -z ${COHORT_PYTHON:-} && ! -e $logs/optional.log ]] && command -v apt-get >/dev/null; then  # tried once
    [[ $(id -u) == 0 ]] || as_root=(sudo -n)
    say "installing ${wanted[*]} (optional)"
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive sh -c "apt-get update &&
      apt-get install -y --no-install-recommends -o DPkg::Lock::Timeout=300 ${wanted[*]}" >"$logs/optional.log" 2>&1 || true
  fi
  has_header metis.h ||
    say "no METIS: \`cohort dataset partition --method metis\` is left out of the build; to have it: apt-get install libmetis-dev"
}

# --- Python ---------------------------------------------------------------------------------------------------------

# What the virtual environment was made for; any difference means work. pip leaves compiling modules to the first import:
# most are never imported.
venv_key() {
  echo "$root/.venv"
  "$base_python" -c 'import sys; print(sys.version)'
  "$base_python" "$root/launch/setup/requirements.py" list "${all_groups[@]}"
}

make_venv() {
  local venv=$root/.venv key wanted
  unset PYTHONHOME PYTHONPATH
  python=$venv/bin/python
  PATH=$venv/bin:$PATH
  wanted=$(venv_key)
  key=$(cat "$venv/.cohort" 2>/dev/null || true)
  if [[ $key == "$wanted" ]] && "$python" -c ''; then
    say "Python packages: unchanged"
    return
  fi
  if ! "$python" -c 'import pip' 2>/dev/null || [[ -n $key && ${key%%$'\n'*} != "$venv" ]]; then
    step venv "making .venv with $base_python" "check that $base_python works and the disk has room" \
      "$base_python" -m venv --clear "$venv"
  fi
  local list pip=("$python" -m pip install --disable-pip-version-check --no-input --no-compile)
  mapfile -t list < <("$base_python" "$root/launch/setup/requirements.py" list build)
  step build_tools "installing CMake, Ninja and nanobind into .venv" "check the network" "${pip[@]}" "${list[@]}"
  mapfile -t list < <(tail -n +3 <<<"$wanted")
  packages_step=(pip "installing Python packages into .venv (the first time: a few minutes, about 6 GB with torch)"
    "check the network and the disk (df -h '$root')" "${pip[@]}" "${list[@]}")
  say "${packages_step[1]}"
  "${packages_step[@]:3}" >"$logs/pip.log" 2>&1 & # the build does not need them
  packages_pid=$! packages_key=$wanted
  trap 'kill "$packages_pid" 2>/dev/null || true' EXIT
}

# Waits for the packages that make_venv has begun to install.
end_make_venv() {
  local status=0
  [[ -n ${packages_pid:-} ]] || return 0
  wait "$packages_pid" || status=$?
  packages_pid=
  trap - EXIT
  end_of_step "$status" "${packages_step[@]}"
  printf '%s\n' "$packages_key" >"$root/.venv/.cohort"
}

# COHORT_PYTHON: everything must be there already; says all that is missing at once.
use_given_python() {
  local list lacking
  python=$(command -v "$COHORT_PYTHON") || stop "COHORT_PYTHON=$COHORT_PYTHON is not a program" "set it to the path of an interpreter"
  [[ $python == /* ]] || python=$PWD/$python
  PATH=$(dirname "$python"):$("$python" -c 'import sysconfig; print(sysconfig.get_path("scripts"))'):$PATH
  [[ ! -d $deps/python ]] || export PYTHONPATH=$deps/python${PYTHONPATH:+:$PYTHONPATH} PATH=$PATH:$deps/python/bin
  say "using $python; nothing is installed"
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || stop "$python is older than Python 3.11" "use a newer one"
  lacking=$("$python" "$root/launch/setup/requirements.py" missing "$@") || stop "cannot list what $python lacks (see above)"
  # The build tools may be programs on PATH; check_cmake looks for those.
  mapfile -t list < <(grep -vE '^(cmake|ninja|scikit-build-core)\b|^$' <<<"$lacking")
  ((${#list[@]} == 0)) || stop "$python lacks: ${list[*]}" "'$python' -m pip install ${list[*]@Q}" \
    "or, offline, unpack their wheels into '$deps/python'"
}

check_cmake() {
  local text
  text=$(cmake --version 2>/dev/null) || stop "no cmake beside $python or on PATH" "'$python' -m pip install 'cmake>=3.27'"
  [[ $text =~ version\ ([0-9]+)\.([0-9]+) ]] && ((BASH_REMATCH[1] * 100 + BASH_REMATCH[2] >= 327)) ||
    stop "$(command -v cmake) is ${text%%$'\n'*}; 3.27 or newer is needed" "'$python' -m pip install 'cmake>=3.27'"
}

# --- CUDA -----------------------------------------------------------------------------------------------------------

# nvcc, cudart and CCCL from their PyPI packages, in a folder of their own.
install_cuda() {
  local cuda=$deps/cuda list text
  text=$(nvidia-smi)
  if [[ $text =~ CUDA\ Version:\ *([0-9]+) ]] && ((BASH_REMATCH[1] < 13)); then
    say "the GPU driver supports CUDA ${BASH_REMATCH[1]} only and there is no CUDA Toolkit: install a driver >= 580, or a Toolkit of CUDA 12.5 to 12.9"
    return
  fi
  mapfile -t list < <("$python" "$root/launch/setup/requirements.py" list cuda)
  rm -rf "$cuda" "$cuda.part"
  step cuda "installing nvcc, cudart and CCCL from PyPI into .deps/cuda (about 300 MB)" "check the network; or install the CUDA Toolkit" \
    "$python" -m pip install --disable-pip-version-check --no-input --no-deps --target "$cuda.part" "${list[@]}"
  # nvcc looks for its libraries in lib64, CMake for a libcudart.so: the packages have neither name.
  ln -s lib "$cuda.part/nvidia/cu13/lib64"
  ln -s libcudart.so.13 "$cuda.part/nvidia/cu13/lib/libcudart.so"
  mv -T "$cuda.part" "$cuda"
}

choose_cuda() {
  nvcc=
  with_cuda=no
  if [[ ${COHORT_CUDA:-} == OFF ]]; then
    say "COHORT_CUDA=OFF: building the CPU backend only"
    return
  fi
  find_nvcc
  if [[ -z $nvcc && $has_gpu == yes ]]; then
    if [[ -n ${COHORT_PYTHON:-} ]]; then
      say "there is a GPU but no nvcc >= 12.5 (CUDACXX, PATH, CUDA_HOME, /usr/local/cuda), and nothing is installed with COHORT_PYTHON"
    else
      install_cuda
      find_nvcc
    fi
  fi
  if [[ -z $nvcc ]]; then
    say "no CUDA compiler: building the CPU backend only"
    return
  fi
  with_cuda=yes
  # CMake cuts nvcc's own library path at a space; for the packages' nvcc, whose path is the checkout's, this mends it.
  [[ $nvcc != "$deps"/* ]] || export LIBRARY_PATH=${nvcc%/bin/nvcc}/lib${LIBRARY_PATH:+:$LIBRARY_PATH}
  architectures=${COHORT_CUDA_ARCHITECTURES:-}
  unoptimized=no
  if [[ -z $architectures && $has_gpu == no ]]; then
    architectures=${without_gpu:-90}
    [[ $architectures != *-virtual ]] || unoptimized=yes # a test of the compiler alone: nothing runs this PTX
    say "no GPU here: compiling CUDA code for architecture $architectures only (COHORT_CUDA_ARCHITECTURES changes this)"
  fi
  : "${architectures:=80-real;90}"
}

# --- the build ------------------------------------------------------------------------------------------------------

configure() {
  local options key
  generator="Unix Makefiles"
  command -v ninja >/dev/null && generator=Ninja
  options=(-S "$root" -B "$build" -G "$generator" -DCMAKE_BUILD_TYPE=Release "-DPython_EXECUTABLE=$python" -DCOHORT_TESTS=ON)
  if [[ $with_cuda == yes ]]; then
    options+=(-DCOHORT_CUDA=ON "-DCMAKE_CUDA_COMPILER=$nvcc" "-DCMAKE_CUDA_ARCHITECTURES=$architectures"
      "-DCMAKE_CUDA_FLAGS=${CUDAFLAGS:-}")
    [[ $unoptimized == no ]] || options+=("-DCMAKE_CUDA_FLAGS_RELEASE=-Xcicc=-O0 -O0 -DNDEBUG")
    [[ $has_gpu == yes ]] || options+=(-DCOHORT_GPU_TESTS=OFF)
  else
    options+=(-DCOHORT_CUDA=OFF)
  fi
  [[ $has_gpu == no ]] || together=OFF
  options+=("-DCOHORT_TOGETHER=${together:=OFF}")
  key=$(printf '%s\n' "$(command -v cmake)" "${CXX:-c++}" "$("$python" -V)" "$(has_header metis.h && echo metis)" "${options[@]}")
  [[ -f $build/CMakeCache.txt && $(cat "$build/.cohort" 2>/dev/null || true) == "$key" ]] && return
  rm -f "$build/.cohort" "$without_cuda/CMakeCache.txt"
  step configure "configuring build/" "the last lines above name what is missing" cmake --fresh "${options[@]}"
  printf '%s\n' "$key" >"$build/.cohort"
}

build_target() {
  local jobs
  jobs=$(nproc)
  step build "building $1 in build/ with $jobs jobs" "see the first error in the log; if the compiler was killed, memory ran out: close other programs" \
    cmake --build "$build" --target $1 --parallel "$jobs"
}

# What a build with CUDA leaves uncompiled: the programs and libraries of one without, in build-without-cuda/. Nothing runs
# them: they are not optimized, unless ccache has most of them from the build with CUDA, whose flags they have then. The
# folder is beside build/, not in it: ccache tells files apart by their paths from the build's folder.
build_without_cuda() {
  [[ $with_cuda == yes ]] || return 0
  local folder=$without_cuda flags=()
  { [[ -z ${CCACHE_DISABLE:-} ]] && command -v ccache >/dev/null; } || flags=(-DCMAKE_CXX_FLAGS_RELEASE=-O0)
  local cure="what only CUDA code includes or defines stands outside #ifdef COHORT_WITH_CUDA; the log names the file"
  [[ -f $folder/CMakeCache.txt ]] ||
    step configure_without_cuda "configuring build-without-cuda/" "the last lines above name what is missing" \
      cmake --fresh -S "$root" -B "$folder" -G "$generator" -DCOHORT_CUDA=OFF -DCOHORT_TESTS=OFF \
      "-DCOHORT_TOGETHER=$together" "-DPython_EXECUTABLE=$python" -DCMAKE_BUILD_TYPE=Release "${flags[@]}"
  step build_without_cuda "compiling the programs without CUDA" "$cure" \
    cmake --build "$folder" --target programs --parallel "$(nproc)"
}

# The command and the package of this build, in the virtual environment: a link, and a line that Python reads as it starts.
link_command() {
  ln -sfn ../../build/bin/cohort "$root/.venv/bin/cohort"
  "$python" - "$build/python" <<'PYTHON'
import pathlib, sys, sysconfig
pathlib.Path(sysconfig.get_path("purelib"), "cohort.pth").write_text(sys.argv[1] + "\n")
PYTHON
}

cohort_tools() {
  begin_tools "$@"
  end_make_venv
}

begin_tools() {
  mkdir -p "$logs"
  lock_checkout
  find_gpu
  install_packages
  install_optional
  if [[ -n ${COHORT_PYTHON:-} ]]; then
    use_given_python "$@"
  else
    make_venv
  fi
  check_cmake
  choose_cuda
}

cohort_setup() {
  local target=$1
  shift
  unset PYTHONDONTWRITEBYTECODE # or each process compiles all modules again; .gitignore has what is written
  begin_tools "$@"
  configure
  build_target "$target"
  end_make_venv
  [[ -n ${COHORT_PYTHON:-} ]] || link_command
}
