#!/usr/bin/env bash
# The libraries of Debian 11 (glibc 2.31), with which launch/wheel.sh links, from the archive that this Debian's apt uses.
# Nothing is installed.
#
#   bash launch/setup/old_system.sh FOLDER x86_64|aarch64
#
# FOLDER then has
#   lib, usr/lib    glibc, libgcc and the OpenMP library
#   bundled         the libraries that go into a wheel
#   metis           METIS, compiled here: libmetis.a and metis.h
set -euo pipefail

here=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
folder=$(realpath -m -- "$1")
triplet=$2-linux-gnu
[[ $2 == aarch64 ]] && architecture=arm64 || architecture=amd64
release=bullseye
key=/usr/share/keyrings/debian-archive-keyring.gpg
packages=(libc6 libc6-dev libgcc-s1 libgomp1)

stop() { printf '%s\n' "$*" >&2; exit 1; }

# apt-get with this release's lists alone, and nothing of this system's state.
old_apt() {
  apt-get -q -o Dir::State="$folder/apt" -o Dir::State::status=/dev/null -o Dir::Cache="$folder/apt/cache" \
    -o Dir::Etc::sourcelist="$folder/apt/sources.list" -o Dir::Etc::sourceparts=/dev/null \
    -o Dir::Etc::preferences=/dev/null -o Dir::Etc::preferencesparts=/dev/null -o APT::Sandbox::User=root \
    -o APT::Architecture="$architecture" -o APT::Architectures="$architecture" "$@"
}

# In FOLDER/apt: packages of libraries, and METIS's source.
download() {
  local archive
  archive=$(apt-get indextargets --format '$(REPO_URI) $(ORIGIN) $(LABEL)' 'Created-By: Packages' |
    sed -n 's/ Debian Debian$//p' | sort -u | head -n 1)
  [[ -n $archive ]] || stop "apt knows no archive of Debian: apt-get update"
  mkdir -p "$folder"/apt/{lists,cache/archives}/partial
  printf "deb%s [signed-by=$key] $archive $release main\n" '' -src >"$folder/apt/sources.list"
  old_apt update
  cd "$folder/apt"
  old_apt download "${packages[@]}"
  old_apt source --download-only metis
}

unpack() {
  local package link target
  for package in "$folder"/apt/*.deb; do
    dpkg -x "$package" "$folder"
  done
  find "$folder" -type l -lname '/*' -printf '%p %l\n' | while read -r link target; do
    ln -sfn "$folder$target" "$link"
  done
  mkdir -p "$folder/bundled"
  cp -L "$folder/usr/lib/$triplet/libgomp.so.1" "$folder/bundled"
}

# Without GKlib's parts under the LGPL: getopt.c, gkregex, and the header that launch/setup/metis has one for.
build_metis() {
  local metis=$folder/metis part
  local flags=(-O3 -fPIC -std=gnu99 -fno-strict-aliasing -w -DLINUX -DNDEBUG -DNDEBUG2 -DHAVE_EXECINFO_H -DHAVE_GETLINE)
  mkdir -p "$metis/source"
  tar -xf "$folder"/apt/metis_*.orig.tar.* -C "$metis/source" --strip-components=1
  rm "$metis"/source/GKlib/{getopt.c,gkregex.c,gkregex.h}
  cp "$here/metis/gk_mksort.h" "$metis/source/GKlib"
  for part in GKlib libmetis; do
    mkdir "$metis/$part"
    cd "$metis/$part"
    "$triplet-gcc" "${flags[@]}" -I../source/GKlib -I../source/include -I../source/libmetis -c ../source/"$part"/*.c
  done
  "$triplet-ar" rcs "$metis/libmetis.a" "$metis"/{libmetis,GKlib}/*.o
  cp "$metis/source/include/metis.h" "$metis"
}

command -v apt-get >/dev/null && [[ -e $key ]] || stop "this system cannot get packages of Debian: use Debian 12"
command -v "$triplet-gcc" >/dev/null || stop "no compiler for $2: apt-get install g++-${2/_/-}-linux-gnu"
rm -rf "$folder"
download
unpack
build_metis
touch "$folder/complete"
