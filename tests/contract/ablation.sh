#!/usr/bin/env bash
# ablation.sh MODEL [TURNS [NAME...]]: what keeping the order of sums costs. For each patch of ablation/ (or those named),
# links a `troupe` whose answers depend on the schedule, and runs it in turns with the real one (TURNS times, 15). Prints
# a table of ratios: medians over the turns, above 1 where any order is faster. Needs a build of troupe in build/release
# (or BUILD), of which only what a patch changes is compiled anew. SET: the instruction set (avx512-bf16). RUN: a command
# ahead of each run, such as `chrt -f 1` on a machine that does other things.
# A patch begins with a line that describes it, then `sources:`, which are compiled with it, and `run:`, the arguments of
# `troupe bench model`, whose decoding is measured.
set -e
tree=$(dirname "$(dirname "$(dirname "$(readlink -f "$0")")")")
model=${1:?ablation.sh MODEL [TURNS [NAME...]]}
turns=${2:-15}
shift $(($# < 2 ? $# : 2))
build=${BUILD:-$tree/build/release}
set=${SET:-avx512-bf16}
work=${ABLATION_WORK:-$build/ablation}
mkdir -p "$work"
ninja -C "$build" -t commands troupe >"$work/commands"
link=$(tail -n 1 "$work/commands")
link=${link#*&& }
link=${link% && :}

# build_variant PATCH NAME: links $work/NAME with it.
build_variant() {
  local copy=$work/$2.tree file unit compile from object objects=
  rm -rf "$copy"
  for file in $(sed -n 's/^+++ b\///p' "$1"); do
    mkdir -p "$copy/$(dirname "$file")"
    cp "$tree/$file" "$copy/$file"
  done
  patch -sF0 -p1 -d "$copy" <"$1" || return 1
  # Sources alone or the batch that they are compiled in, with the patched headers ahead of the tree's.
  for unit in $(sed -n 's/^sources: //p' "$1" | sed "s/SET/${set//-/_}/"); do
    compile=$(grep -- "-c [^ ]*/$unit\$" "$work/commands" || true)
    from=$tree/$unit
    [ -f "$copy/$unit" ] && from=$copy/$unit
    if [ -z "$compile" ]; then
      local batch
      batch=$(grep -rl --include='unity_*.cxx' "/$unit\"" "$build/$(cut -d/ -f1 <<<"$unit")" | head -n 1)
      compile=$(grep -- "-c [^ ]*/$(basename "$batch")\$" "$work/commands")
      from=$work/$2.$(basename "$batch")
      cp "$batch" "$from"
      for file in $(sed -n 's/^+++ b\///p' "$1"); do
        sed -i "s|\"[^\"]*/$file\"|\"$copy/$file\"|" "$from"
      done
    fi
    object=$work/$2.$(basename "$from" | sed "s/^$2[.]//").o
    [[ $objects == *" $object"* ]] && continue # another source of the same batch
    objects+=" $object"
    (cd "$build" && eval "$(sed -E "s| -I| -I$copy -I|; s| -o [^ ]+ | -o $object |; s| -MF [^ ]+ | -MF $object.d |; s| -c [^ ]+\$| -w -c $from|" <<<"$compile")") || return 1
  done
  (cd "$build" && eval "${link/ -o troupe/$objects -o $work/$2}")
}

# decode PROGRAM ARGUMENTS...: milliseconds of a step.
decode() {
  $RUN "$1" bench model --model "$model" --device "cpu:$set" --json "${@:2}" 2>/dev/null |
    sed -n 's/.*"decode_ms_per_step":\([0-9.]*\).*/\1/p'
}

[ $# -gt 0 ] || set -- $(cd "$tree/tests/contract/ablation" && ls -- *.patch)
echo "| variant | run | ms of a step | variant | ratio | quartiles |"
echo "|---|---|---|---|---|---|"
for name; do
  name=$(basename "$name" .patch)
  patch=$tree/tests/contract/ablation/$name.patch
  if [ "$work/$name" -nt "$patch" ] && [ "$work/$name" -nt "$build/troupe" ]; then
    : # it is there from before
  elif ! build_variant "$patch" "$name" >"$work/log" 2>&1; then
    echo "| $(head -n 1 "$patch") | | does not build: see $work/log | | | |"
    continue
  fi
  sed -n 's/^run: //p' "$patch" | while read -r arguments; do
    for ((turn = 0; turn < turns; turn++)); do
      echo "$(decode "$build/troupe" $arguments) $(decode "$work/$name" $arguments)"
    done >"$work/turns"
    awk -v title="$(head -n 1 "$patch")" -v run="$arguments" '
      function sort(a, n, i, j, t) { for (i = 2; i <= n; i++) for (j = i; j > 1 && a[j - 1] > a[j]; j--) { t = a[j]; a[j] = a[j - 1]; a[j - 1] = t } }
      function at(a, n, share) { return a[int((n - 1) * share + 1.5)] }
      NF == 2 { n++; was[n] = $1; is[n] = $2; ratio[n] = $1 / $2 }
      END { sort(was, n); sort(is, n); sort(ratio, n)
        printf "| %s | `%s` | %.3f | %.3f | %.3f | %.3f to %.3f |\n", title, run, at(was, n, .5), at(is, n, .5), at(ratio, n, .5), at(ratio, n, .25), at(ratio, n, .75) }' "$work/turns"
  done
done
