#!/usr/bin/env bash
# bare_chroot.sh BUNDLE: runs the programs of a bundle (troupe_cuda_bundle) where there is nothing but the C library and
# bash, and no GPU. Each must start, find its own libraries, say in one sentence that there is no GPU, and say so with
# its exit status. Exit status: 1 if one does not, 77 if this machine allows no chroot.
set -uo pipefail
bundle=$(realpath "$1")
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir -p "$root"/{tmp,results}
cp -r "$bundle" "$root/bundle"

# Copies the libraries that a list of `ldd` names, except those of the bundle.
copy_libraries() {
  local library
  while read -r library; do
    [[ $library == "$bundle"/* ]] || [ -e "$root$library" ] || install -D "$(realpath "$library")" "$root$library"
  done < <(grep -o '/[^ ]*')
}
for program in bash mkdir timeout; do
  path=$(command -v $program)
  install -D "$path" "$root/bin/$program"
  copy_libraries < <(ldd "$path")
done
# Of the bundle's programs only the C library and its loader: the bundle must have the rest.
for program in troupe troupe_cuda_tests troupe_cuda_decoder_tests troupe_cuda_bench; do
  copy_libraries < <(LD_LIBRARY_PATH=$bundle ldd "$bundle/$program" |
    grep -E '/(ld-linux[^/]*|lib(c|m|dl|rt|pthread)\.so\.[0-9]+) ')
done

PATH=$PATH:/usr/sbin
enter=("$(command -v chroot)" "$root")
[ "$(id -u)" -eq 0 ] || enter=("$(command -v unshare)" --user --map-root-user "${enter[@]}")
# Without /proc the loader does not know $ORIGIN, unless it is told.
enter=(env -i PATH=/bin LD_ORIGIN_PATH=/bundle "${enter[@]}")
if ! "${enter[@]}" /bin/bash -c : 2>"$root/why"; then
  if grep -qi "not permitted\|permission" "$root/why"; then
    echo "skipped, this machine allows no chroot: $(<"$root/why")"
    exit 77
  fi
  echo "FAILED: $(<"$root/why")"
  exit 1
fi

failed=0
# expect STATUS TEXT COMMAND...: runs a command inside.
expect() {
  local status=$1 text=$2 output got
  shift 2
  output=$("${enter[@]}" timeout 60 "$@" 2>&1)
  got=$?
  if [ $got -ne "$status" ] || [[ $output != *"$text"* ]]; then
    echo "FAILED: $* ended with $got, not $status, or did not say \`$text\`:"
    printf '%s\n' "$output" | tail -n 20
    failed=1
  else
    echo "ok: $*"
  fi
}
none="no NVIDIA driver was found"
expect 77 "$none" /bundle/troupe_cuda_tests
expect 77 "$none" /bundle/troupe_cuda_decoder_tests
expect 77 "$none" /bundle/troupe_cuda_bench l
expect 0 "troupe" /bundle/troupe --version
expect 1 "$none" /bundle/troupe bench model --device cuda:0 --model /bundle/tests/data/golden/llama-gqa
expect 77 "no GPU" /bin/bash /bundle/first_light.sh /results
grep -q '"gpu": null' "$root/results/results.json" || { echo "FAILED: results.json does not say that there is no GPU"; failed=1; }
exit $failed
