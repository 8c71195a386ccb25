#!/usr/bin/env bash
# Whether the one file is the same bytes wherever it is built: builds what is committed in two folders of different names, links
# the file in each (api/packaging/one_file.sh), compares them, and tries the file. Takes two whole builds.
#   tests/packaging/one_file_twice.sh        needs root, as tests/packaging/one_file.sh does; JOBS: compilers at once
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/../.."
project=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export CCACHE_DISABLE=1
for folder in "$work/a" "$work/another/folder"; do
  printf '== %s\n' "$folder"
  git clone --quiet "$project" "$folder"
  cd "$folder"
  cmake -S . -B build/one -G Ninja -DCMAKE_BUILD_TYPE=Release -DTROUPE_TESTS=OFF -DTROUPE_CUDA=OFF >"$work/log"
  cmake --build build/one --parallel "${JOBS-$(nproc)}" >"$work/log" || { tail -n 20 "$work/log"; exit 1; }
  api/packaging/one_file.sh build/one build/one-file
  ls "$folder"/build/one-file/troupe-*-linux-x86_64 >>"$work/files"
done
cd "$project"
tests/packaging/one_file.sh $(<"$work/files")
