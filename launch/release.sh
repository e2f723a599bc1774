#!/usr/bin/env bash
# Makes the files of a release, from a clean checkout of the commit that will have its tag:
#
#   bash launch/release.sh [--out FOLDER] PYTHON3.11 PYTHON3.12
#
# FOLDER (default: dist/VERSION) then has the source distribution, the wheels of launch/wheel.sh for x86-64 (CUDA and CPU)
# and aarch64 (CPU), what auditwheel says of them, a list of what they contain (CycloneDX), the notes of the release from
# CHANGELOG.md, and checksums. The interpreters have their headers; the machine is Debian 12 with the CUDA Toolkit 13 and
# g++-aarch64-linux-gnu. Nothing leaves the machine: the last lines are what a maintainer does then.
set -euo pipefail
root=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
most_bytes=60000000

stop() { printf 'cohort: stopped: %s\n' "$@" >&2; exit 1; }

arguments() {
  out='' interpreters=()
  while (($#)); do
    case $1 in
      --out) (($# > 1)) || stop "--out: expected a folder, found nothing"; out=$(realpath -m -- "$2"); shift 2 ;;
      *) interpreters+=("$1"); shift ;;
    esac
  done
  ((${#interpreters[@]} == 2)) || stop "expected two interpreters, Python 3.11 and 3.12, found ${#interpreters[@]}"
  local expected=311 found
  for interpreter in "${interpreters[@]}"; do
    found=$("$interpreter" -c 'import sys; print("%d%d" % sys.version_info[:2])') || stop "$interpreter is no Python"
    [[ $found == "$expected" ]] || stop "$interpreter: expected Python 3.${expected#3}, found 3.${found#3}"
    expected=312
  done
}

# Leaves $version and $notes, the section of CHANGELOG.md.
check_checkout() {
  cd "$root"
  version=$(sed -nE 's/^project\(cohort VERSION ([0-9.]+).*/\1/p' CMakeLists.txt)
  grep -qx "__version__ = \"$version\"" base/version.py || stop "base/version.py: expected $version, as in CMakeLists.txt"
  grep -qxE "version: \"?$version\"?" CITATION.cff || stop "CITATION.cff: expected version $version, as in CMakeLists.txt"
  notes=$(awk -v head="## $version (" 'index($0, "## ") == 1 { inside = index($0, head) == 1 } inside' CHANGELOG.md)
  [[ $notes =~ ^"## $version ("[0-9]{4}-[0-9]{2}-[0-9]{2}\) ]] ||
    stop "CHANGELOG.md: expected the section \"## $version (YEAR-MONTH-DAY)\", found \"${notes%%$'\n'*}\""
  [[ -z $(git status --porcelain) ]] || stop "the checkout has changes: commit them first"
  [[ -z $(git tag --list "v$version") ]] || stop "the tag v$version exists, and a tag never moves: release a patch"
}

make_distributions() {
  mkdir -p "$out"
  [[ -z $(ls -A "$out") ]] || stop "$out is not empty: name another folder with --out"
  bash launch/wheel.sh --out "$out" "${interpreters[@]}"
  COHORT_CUDA=OFF bash launch/wheel.sh --out "$out" --machine aarch64 "${interpreters[@]}"
  tools=$root/.venv/bin/python
  [[ -z ${COHORT_PYTHON:-} ]] || tools=$COHORT_PYTHON
  "$tools" -c 'import sys, scikit_build_core.build as build; build.build_sdist(sys.argv[1])' "$out" >/dev/null
  local file
  for file in "$out"/*.whl; do
    (($(stat -c %s "$file") <= most_bytes)) || stop "$file has more than $most_bytes bytes"
    "$tools" -m auditwheel show "$file" >>"$out/auditwheel.txt"
  done
}

arguments "$@"
check_checkout
: "${out:=$root/dist/$version}"
make_distributions
"$tools" launch/setup/contents.py "$version" >"$out/cohort-gnn-$version.cdx.json"
printf '%s\n' "$notes" >"$out/notes.md"
(cd "$out" && sha256sum -- *.whl *.tar.gz *.json >SHA256SUMS && ls -sh1)
cat <<TEXT

Then, where each of these passes:
  bash tests/run.sh --all; on a machine with a GPU: bash tests/gpu.sh
  git tag -s v$version -m "Cohort $version" $(git rev-parse --short HEAD) && git push origin v$version
  gpg --armor --detach-sign '$out/SHA256SUMS'
  twine check '$out'/*.whl '$out'/*.tar.gz && twine upload '$out'/*.whl '$out'/*.tar.gz
TEXT
