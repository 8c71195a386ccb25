#!/usr/bin/env bash
# Tries what api/packaging/arm64/package.sh has made, in QEMU's emulation of a Cortex-A76 (a Raspberry Pi 5): a story, the
# server, golden checkpoints, once by the package with the libraries that it asks for, in a root of their own, and once by the
# one file without any.
#   tests/packaging/arm64.sh [FOLDER]     build/arm64
# Needs Debian's qemu-user-static, python3 and curl. Times in the emulation say nothing about ARM processors.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/../.."
folder=${1-build/arm64}
package=$(readlink -f "$(ls -t "$folder"/troupe_*_arm64.deb | head -n 1)")
file=$(readlink -f "$(ls -t "$folder"/one-file/troupe-*-linux-aarch64 | head -n 1)")
work=$(mktemp -d)
server=
clean() {
  [ -z "$server" ] || kill "$server" 2>/dev/null || true
  rm -rf "$work"
}
trap clean EXIT

say() { printf '== %s\n' "$*"; }

fail() {
  say "FAILED: $*"
  exit 1
}

[ "$(dpkg-deb -f "$package" Architecture)" = arm64 ] || fail "the package is not for arm64"
say "the package's libraries, by its own words: $(dpkg-deb -f "$package" Depends)"
api/packaging/arm64/root.sh "$work/root" "$package" || fail "what the package needs cannot be had"
for page in share/man/man1/troupe-run.1.gz share/bash-completion/completions/troupe share/zsh/vendor-completions/_troupe; do
  [ -s "$work/root/usr/$page" ] || fail "there is no /usr/$page"
done

cpu=cortex-a76 kind=neon-dotprod
export QEMU_CPU=$cpu
whole="qemu-aarch64-static -L $work/root"
try() {
  local name=$1 port=$2
  shift 2
  say "$name: version and story on $cpu"
  "$@" --version
  "$@" run --max-tokens 24 --temperature 0 "Tell me a story about a fox" | tee "$work/story"
  [ -s "$work/story" ] || fail "there is no story"
  say "$name: the server"
  "$@" serve --port "$port" --log-level off >"$work/log" 2>&1 &
  server=$!
  for _ in $(seq 240); do
    curl -fs "http://127.0.0.1:$port/health" >/dev/null && break
    kill -0 "$server" || { cat "$work/log"; fail "the server has ended"; }
    sleep 0.5
  done
  curl -fsS "http://127.0.0.1:$port/v1/chat/completions" -H 'Content-Type: application/json' -d '{
    "messages": [{"role": "user", "content": "Tell me a story about a fox"}], "max_tokens": 24, "temperature": 0}' |
    tee "$work/answer"
  echo
  grep -q '"completion_tokens":24' "$work/answer" || fail "the server's answer is not one of 24 tokens"
  python3 -c 'import json, sys
said = json.load(open(sys.argv[1]))["choices"][0]["message"]["content"].strip()
sys.exit(said != open(sys.argv[2]).read().strip())' "$work/answer" "$work/story" || fail "the server tells another story"
  kill -TERM "$server"
  wait "$server" || fail "the server ended with $?"
  server=
}
export XDG_CACHE_HOME=$work/cache
say "golden checkpoints"
tests/arm/answers.py --emulator "$whole" --tokens 8 "$work/root/usr/bin/troupe" "$kind=$cpu" || fail "answers"
try "the package" 8095 $whole "$work/root/usr/bin/troupe"
! file -b "$file" | grep -q 'dynamically linked' || fail "the file needs libraries"
try "the one file" 8096 qemu-aarch64-static "$file"
say "passed: $(basename "$package"), $(stat -c %s "$package") bytes; $(basename "$file"), $(stat -c %s "$file") bytes"
