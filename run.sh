#!/usr/bin/env bash
# Installs missing packages, builds Troupe, and starts the server with the bundled model.
#   ./run.sh               the server, on http://127.0.0.1:8080
#   ./run.sh ARGS...       runs `build/release/troupe ARGS...`, for example: ./run.sh run "Tell me a story"
set -euo pipefail
here=$(pwd)
cd "$(dirname "$(readlink -f "$0")")"
. .ci/lib.sh

install_packages "${build_packages[@]}"
# CPU kernels for this machine alone, unless tests have built all.
settings=()
[ -e build/release/build.ninja ] || settings=(-DTROUPE_INSTRUCTION_SETS=native)
build release "${settings[@]}" -- troupe

troupe=$PWD/build/release/troupe
cd "$here" # paths in ARGS are relative to the caller's folder
[ $# -gt 0 ] || set -- serve
exec "$troupe" "$@"
