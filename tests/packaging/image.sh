#!/usr/bin/env bash
# Tries the image that api/packaging/image.sh makes, as its own user with a read-only root: it refuses to be open to others
# without a key, answers with one, can write nothing, and stops when it is told.
#   tests/packaging/image.sh [LAYOUT]
# Needs root, umoci and curl. Runs the image by crun where the kernel lets it, else in a chroot without rights.
set -euo pipefail
layout=$(readlink -f "${1-$(dirname "$(readlink -f "$0")")/../../build/image}")
port=8095
work=$(mktemp -d)
bundle=$work/bundle
server= by=
clean() {
  [ -z "$server" ] || kill "$server" 2>/dev/null || true
  [ "$by" != crun ] || crun delete --force "troupe-$$" >/dev/null 2>&1 || true
  ! mountpoint -q "$work/read-only/proc" || umount "$work/read-only/proc"
  ! mountpoint -q "$work/read-only" || umount "$work/read-only"
  rm -rf "$work"
}
trap clean EXIT

say() { printf '== %s\n' "$*"; }

fail() {
  say "FAILED: $*"
  exit 1
}

version=$(umoci list --layout "$layout" | head -n 1)
umoci unpack --image "$layout:$version" "$bundle" >/dev/null 2>&1
root=$bundle/rootfs
[ "$(stat -c %u "$root/usr/bin/troupe")" = 0 ] || fail "the program belongs to its user"
user=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["process"]["user"]["uid"])' "$bundle/config.json")
[ "$user" -gt 0 ] || fail "the image runs as root"

# The network of this machine, a read-only root, a key; without limits that this kernel may lack. The first command only ends.
python3 - "$bundle/config.json" $port >"$work/command" <<'EOS'
import json, sys
path, port = sys.argv[1:]
config = json.load(open(path))
process = config["process"]
process["args"] += ["--port", port]
print("\n".join(process["args"]))
config["root"]["readonly"] = True
process.update(terminal=False, noNewPrivileges=True, env=process["env"] + ["TROUPE_API_KEY=secret"])
config["linux"]["namespaces"] = [each for each in config["linux"]["namespaces"] if each["type"] != "network"]
config["linux"].pop("resources", None)
json.dump(config, open(path + ".whole", "w"))
process["args"] = ["true"]
json.dump(config, open(path, "w"))
EOS
mapfile -t command <"$work/command"

mkdir "$work/read-only"
mount --bind "$root" "$work/read-only"
mount -o remount,bind,ro "$work/read-only"
mount -t proc proc "$work/read-only/proc"
within() { # [NAME=VALUE...] COMMAND...: as the image's user
  chroot --userspec="$user:$user" "$work/read-only" env -i PATH=/usr/bin:/bin HOME=/var/lib/troupe "$@"
}

say "what it may not do"
! within "${command[@]}" >"$work/log" 2>&1 || fail "it is open to others without a key"
grep -q "API key" "$work/log" || fail "it does not say that a key is missing: $(<"$work/log")"
! within sh -c 'echo x >/var/lib/troupe/x' 2>/dev/null || fail "the root can be written to"

if crun run --bundle "$bundle" "troupe-$$" >"$work/crun" 2>&1; then
  by=crun
  say "run by crun"
  mv "$bundle/config.json.whole" "$bundle/config.json"
  crun run --bundle "$bundle" "troupe-$$" >"$work/log" 2>&1 &
else
  say "run in a chroot, as crun cannot here: $(tail -n 1 "$work/crun")"
  within TROUPE_API_KEY=secret "${command[@]}" >"$work/log" 2>&1 &
fi
server=$!
for _ in $(seq 120); do
  curl -fs "http://127.0.0.1:$port/health" >/dev/null && break
  kill -0 "$server" || { cat "$work/log"; fail "the server has ended"; }
  sleep 0.25
done
[ "$(curl -s -o /dev/null -w '%{http_code}' "http://127.0.0.1:$port/v1/models")" = 401 ] || fail "no key is asked for"
curl -fsS "http://127.0.0.1:$port/v1/chat/completions" -H 'Authorization: Bearer secret' -H 'Content-Type: application/json' -d '{
  "messages": [{"role": "user", "content": "Tell me a story about a fox"}], "max_tokens": 24, "temperature": 0}' |
  tee "$work/answer"
echo
grep -q '"completion_tokens":24' "$work/answer" || fail "the server's answer is not one of 24 tokens"
process=$(pgrep -x troupe -u "$user" | head -n 1)
[ -n "$process" ] || fail "no process of user $user is the server"
if [ "$by" = crun ]; then crun kill "troupe-$$" TERM; else kill -TERM "$process"; fi
wait "$server" || fail "the server ended with $?"
server=
say "passed: troupe:$version as user $user, $(du -sh "$layout" | cut -f1)"
