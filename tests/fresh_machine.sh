#!/usr/bin/env bash
# The README's first commands on a machine that has nothing but git: a clean clone of what is committed, in a bare Debian 12
# that debootstrap makes in a folder. Run before every release.
#   tests/fresh_machine.sh               `./run.sh`, until its server answers, and `./test.sh`
#   tests/fresh_machine.sh COMMAND...    these instead, for example './run.sh --version'
# Shows after how many seconds a command says what; build/fresh_machine.log has all of it. Packages come as this machine's
# apt and pip get them. Needs root, Debian 12, debootstrap and git, port 8080, and for both commands about an hour of two
# cores and 20 GB in $TMPDIR.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

# Mounts and processes of its own, so that nothing is left of either.
[ -n "${FRESH_MACHINE-}" ] || FRESH_MACHINE=1 exec unshare --mount --pid --fork --kill-child --mount-proc "$0" "$@"

if [ $# -eq 0 ]; then
  set -- ./run.sh ./test.sh
  for command in "$@"; do
    grep -qF "$command" README.md || { echo "README.md does not name $command"; exit 2; }
  done
fi
log=$PWD/build/fresh_machine.log
mkdir -p build
: >"$log"
root=$(mktemp -d)
chmod 755 "$root" # apt reads as a user of its own
mount --bind "$root" "$root" # so that its `/` is a mount, as on a machine
clean() {
  local folder
  for folder in proc sys dev .; do
    ! mountpoint -q "$root/$folder" || umount -Rl "$root/$folder"
  done
  rm -rf --one-file-system "$root"
}
trap clean EXIT

# timed COMMAND...: its output, with the seconds since it began, goes to the log, and what matters of it is shown.
timed() {
  local begun=$SECONDS line
  echo "== $*"
  { "$@" 2>&1 && echo "passed" || echo "FAILED"; } | while IFS= read -r line; do
    printf '%5d %s\n' $((SECONDS - begun)) "$line"
  done | tee -a "$log" | grep -E '^ *[0-9]+ (Installing|Building|== |the server|[0-9]+ passed|passed$|FAILED$)' | cut -c 1-120
  tail -n 1 "$log" | grep -q ' passed$' || { tail -n 30 "$log"; exit 1; }
}

megabytes() { du -sm --one-file-system "$1" | cut -f 1; }

timed debootstrap --variant=minbase --include=git bookworm "$root" \
  "$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | head -n 1)"
rm -f "$root/etc/apt/sources.list"
for file in /etc/apt /etc/pip.conf /etc/resolv.conf /etc/ssl/certs /usr/share/keyrings /usr/local/share/ca-certificates; do
  [ ! -e "$file" ] || cp -rL "$file" "$root$(dirname "$file")/"
done
echo "127.0.0.1 localhost" >"$root/etc/hosts"
mount -t proc proc "$root/proc"
mount --rbind --make-rslave /sys "$root/sys"
mount --rbind --make-rslave /dev "$root/dev"
git clone --quiet --no-local . "$root/root/troupe"

# Proxies, certificates and pip's settings of this machine.
mapfile -t settings < <(env | grep -iE '^([a-z]+_proxy|pip_[a-z_]+|ssl_cert_[a-z]+|[a-z]+_ca_bundle|node_extra_ca_certs)=')

inside() {
  chroot "$root" env -i HOME=/root LANG=C.UTF-8 TERM=dumb PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    "${settings[@]}" bash -c "cd /root/troupe && $1"
}

# Ends the server when it has answered.
serving() {
  local server answer socket
  inside ./run.sh &
  server=$!
  until { exec {socket}<>/dev/tcp/127.0.0.1/8080 && printf 'GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n' >&$socket &&
    read -r -t 10 answer <&$socket && [[ $answer == *" 200 "* ]]; } 2>/dev/null; do
    kill -0 "$server" 2>/dev/null || return 1
    sleep 0.5
  done
  echo "the server answers"
  kill "$(pgrep -x troupe)" # no other one is in this namespace of processes
  wait "$server"
}

bare=$(megabytes "$root")
for command in "$@"; do
  if [ "$command" = ./run.sh ]; then
    timed serving
  else
    timed inside "$command"
  fi
done
echo "$(($(megabytes "$root") - bare)) MB more than before, $(megabytes "$root/root/troupe") MB of them in the project's folder"
