#!/usr/bin/env bash
# planted.sh [SECONDS [NAME...]]: does the simulation find faults? For each patch of planted/ (or those named), links a
# troupe_simulation with it and runs schedules from seed 1 until one fails, at most SECONDS (60) of CPU. Prints a table.
# Needs a build of troupe_simulation in build/release (or BUILD), of which only what the patch changes is compiled anew.
set -e
tree=$(dirname "$(dirname "$(dirname "$(readlink -f "$0")")")")
seconds=${1:-60}
shift || true
build=${BUILD:-$tree/build/release}
work=${PLANTED_WORK:-$build/planted}
mkdir -p "$work"
ninja -C "$build" -t commands troupe_simulation >"$work/commands"
link=$(tail -n 1 "$work/commands")
link=${link#*&& }
link=${link% && :}

# plant PATCH: links $work/simulation with it.
plant() {
  local file unity compile object=$work/planted.o
  file=$(sed -n 's/^+++ b\///p' "$1")
  patch -sF0 -o "$work/$(basename "$file")" "$tree/$file" "$1" || return 1
  # The batch of sources that the file is compiled in; with the object ahead of the libraries, nothing of theirs is taken.
  unity=$(grep -rl --include='unity_*.cxx' "/$file\"" "$build/$(cut -d/ -f1 <<<"$file")" | head -n 1)
  sed "s|\"[^\"]*/$file\"|\"$work/$(basename "$file")\"|" "$unity" >"$work/unity.cxx"
  compile=$(grep -- "-c [^ ]*/$(basename "$unity")\$" "$work/commands")
  (cd "$build" &&
    eval "$(sed -E "s| -o [^ ]+ | -o $object |; s| -MF [^ ]+ | -MF $object.d |; s| -c [^ ]+\$| -w -c $work/unity.cxx|" <<<"$compile")" &&
    eval "${link/ -o troupe_simulation/ $object -o $work/simulation}")
}

[ $# -gt 0 ] || set -- $(cd "$tree/tests/simulation/planted" && ls -- *.patch)
echo "| fault | | found | s of CPU |"
echo "|---|---|---|---|"
for name; do
  patch=$tree/tests/simulation/planted/$(basename "$name" .patch).patch
  cpu=
  if ! plant "$patch" >"$work/log" 2>&1; then
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
done
