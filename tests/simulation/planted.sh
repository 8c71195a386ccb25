#!/usr/bin/env bash
# planted.sh [SECONDS [NAME...]]: does the simulation find faults? For each patch of planted/ (or those named), builds
# troupe_simulation from a copy of the tree with it, and runs schedules from seed 1 until one fails, at most SECONDS (60) of CPU.
# Prints a table. Needs build/release/troupe_simulation; of actors/ and runtime/scheduling/, which patches change,
# each source is compiled alone and hardly optimised, so that a patch costs seconds.
set -e
tree=$(dirname "$(dirname "$(dirname "$(readlink -f "$0")")")")
seconds=${1:-60}
shift || true
build=$tree/build/release
work=${PLANTED_WORK:-$tree/build/planted}
mkdir -p "$work/objects"
tar -C "$tree" --exclude=./build --exclude=./.git --exclude=./tests/data -c . | tar -C "$work" -x
cd "$work"
export work
compile() { # SOURCE OBJECT
  nice g++ -std=c++20 -O1 -DNDEBUG -DSIMDJSON_THREADS_ENABLED=1 -ffp-contract=off -w -I"$work" -c "$1" -o "$2"
}
export -f compile
object() { echo "$work/objects/$(tr / _ <<<"${1%.cpp}").o"; }
export -f object
sources=$(find actors runtime/scheduling runtime/engine/*.cpp -name '*.cpp' | sort)
echo "$sources" | xargs -P 2 -I{} bash -c 'o=$(object {}); [ "$o" -nt {} ] || compile {} "$o"'
# What CMake links, with these objects first: they define all that the library's units of these sources do.
command=$(ninja -C "$build" -t commands troupe_simulation | tail -n 1)
command=${command#*&& }
command=${command% && :}
link() { (cd "$build" && eval "${command/ -o troupe_simulation/ $(for s in $sources; do object "$s"; done | tr '\n' ' ') -o $work/simulation}"); }
[ $# -gt 0 ] || set -- $(cd tests/simulation/planted && ls *.patch)
echo "| fault | | found | s of CPU |"
echo "|---|---|---|---|"
for name; do
  patch=tests/simulation/planted/$(basename "$name" .patch).patch
  file=$(sed -n 's/^+++ b\///p' "$patch")
  cp "$file" "$work/original"
  cp "$(object "$file")" "$work/original.o"
  cpu=
  if ! patch -sp1 <"$patch" || ! compile "$file" "$(object "$file")" || ! link; then
    found="does not build"
  else
    out=$("$work/simulation" --from 1 --seconds "$seconds" --refuse 2>&1 || true)
    found=$(sed -n 's/^seed [0-9]* (schedule \([0-9]*\)) FAILED: \(.*\)/schedule \1: \2/p' <<<"$out" | head -n 1 | cut -c1-110)
    cpu=$(sed -n 's/.* answers, \([0-9.]*\) s of CPU/\1/p' <<<"$out")
    if [ -z "$found" ] && [ -n "$cpu" ]; then
      found="not in $(sed -n 's/^\([0-9]*\) schedules,.*/\1/p' <<<"$out") schedules"
    elif [ -z "$found" ]; then
      found="crashes: $(tail -n 1 <<<"$out" | cut -c1-80)"
    fi
  fi
  echo "| \`$(basename "$patch" .patch)\` | $(head -n 1 "$patch") | $found | $cpu |"
  cp -p "$work/original.o" "$(object "$file")"
  cp "$work/original" "$file"
  touch -r "$tree/$file" "$file"
done

