#!/usr/bin/env bash
# Tries the file that api/packaging/one_file.sh makes in a root where there is nothing else: no libraries, no /proc, no shell.
#   tests/packaging/one_file.sh FILE [OTHER]     OTHER: the same, built in another folder; both must be the same bytes
# Needs root, and curl.
set -euo pipefail
file=$(readlink -f "$1")
root=$(mktemp -d)
server=
clean() {
  [ -z "$server" ] || kill "$server" 2>/dev/null || true
  rm -rf "$root"
}
trap clean EXIT

say() { printf '== %s\n' "$*"; }

fail() {
  say "FAILED: $*"
  exit 1
}

[ -z "${2-}" ] || cmp "$file" "$2" || fail "two builds differ"
! file -b "$file" | grep -q 'dynamically linked' || fail "the file needs libraries"
cp "$file" "$root/troupe"
within() { env -i "$(command -v chroot)" "$root" /troupe "$@"; }

say "version and help"
within --version
within run --help >/dev/null
say "a story"
within run --max-tokens 24 --seed 1 "Tell me a story about a fox" | tee "$root/story"
[ -s "$root/story" ] || fail "there is no story"
say "the first token"
ms=1000000
for _ in 1 2 3 4 5; do # the best, as other programs may run
  started=$(date +%s%N)
  within run --max-tokens 1 --quiet "Tell me a story about a fox" >/dev/null
  took=$((($(date +%s%N) - started) / 1000000))
  [ "$took" -ge "$ms" ] || ms=$took
done
say "$ms ms from start to end"
[ "$ms" -lt 1000 ] || fail "the first token took longer than a second"
say "the server"
env -i "$(command -v chroot)" "$root" /troupe serve --port 8098 --log-level off >"$root/log" 2>&1 &
server=$!
for _ in $(seq 100); do
  curl -fs http://127.0.0.1:8098/health >/dev/null && break
  kill -0 "$server" || { cat "$root/log"; fail "the server has ended"; }
  sleep 0.1
done
curl -fsS http://127.0.0.1:8098/v1/chat/completions -H 'Content-Type: application/json' -d '{
  "messages": [{"role": "user", "content": "Tell me a story about a fox"}], "max_tokens": 24, "temperature": 0}' | tee "$root/answer"
echo
grep -q '"completion_tokens":24' "$root/answer" || fail "the server's answer is not one of 24 tokens"
kill -TERM "$server"
wait "$server" || fail "the server ended with $?"
server=
say "passed: $(stat -c %s "$file") bytes"
