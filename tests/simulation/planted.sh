#!/usr/bin/env bash
# planted.sh [SECONDS [NAME...]]: does the simulation find faults? Copies the tree with its release build, and for each patch of
# planted/ builds troupe_simulation with it and runs schedules until one fails, at most SECONDS (60) of CPU. Prints a table. Needs
# unshare: the copy is seen in the tree's place, so that only what a patch touches is compiled.
set -e
tree=$(dirname "$(dirname "$(dirname "$(readlink -f "$0")")")")
seconds=${1:-60}
shift || true
copy=$(mktemp -d "${TMPDIR:-/tmp}/planted.XXXXXX")
trap 'rm -rf "$copy"' EXIT
tar -C "$tree" --exclude=./build --exclude=./.git -c . | tar -C "$copy" -x
mkdir -p "$copy/build"
cp -a "$tree/build/release" "$copy/build/"
cat >"$copy/plant" <<'END'
set -e
cd "$1" # seen as a new folder only from here on
seconds=$2
shift 2
[ $# -gt 0 ] || set -- $(cd tests/simulation/planted && ls *.patch)
build() { cmake --build build/release -j 2 --target troupe_simulation >build/planted.log 2>&1; }
echo "| fault | | found after | s of CPU |"
echo "|---|---|---|---|"
for name; do
  patch=tests/simulation/planted/$(basename "$name" .patch).patch
  patch -sp1 <"$patch"
  if ! build; then
    found="does not build" cpu=
  else
    out=$(build/release/tests/simulation/troupe_simulation --from 1 --seconds "$seconds" 2>&1 || true)
    found=$(sed -n 's/^seed [0-9]* (schedule \([0-9]*\)) FAILED: \(.*\)/schedule \1: \2/p' <<<"$out" | head -n 1 | cut -c1-110)
    cpu=$(sed -n 's/.* answers, \([0-9.]*\) s of CPU/\1/p' <<<"$out")
    if [ -z "$found" ]; then
      if [ -n "$cpu" ]; then found="not found in $(sed -n 's/^\([0-9]*\) schedules,.*/\1/p' <<<"$out") schedules"; else found="crashes: $(tail -n 1 <<<"$out" | cut -c1-80)"; fi
    fi
  fi
  echo "| \`$(basename "$patch" .patch)\` | $(head -n 1 "$patch") | $found | $cpu |"
  patch -sRp1 <"$patch"
done
END
exec_in() { unshare -m bash -c 'mount --bind "$0" "$1" && exec bash "$1/plant" "$@"' "$copy" "$@"; }
exec_in "$tree" "$seconds" "$@"
