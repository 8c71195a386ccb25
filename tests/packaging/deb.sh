#!/usr/bin/env bash
# Tries Debian's packages in a bare system: builds them, checks them with lintian, and in a chroot of debootstrap's installs
# them, starts the server, asks it, removes them and looks for what is left.
#   tests/packaging/deb.sh             builds the packages in build/deb first
#   tests/packaging/deb.sh FOLDER      takes the packages that are there
# With EXAMPLE=1, also builds examples/embed there with libtroupe-dev, by find_package and by pkg-config, which fetches a compiler.
# Needs root, and Debian's debootstrap, lintian and curl. CHROOT names a folder with a bare Debian 12 to use (it is changed);
# by default debootstrap makes one from the first source of apt, in a temporary folder.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/../.."

say() { printf '== %s\n' "$*"; }

fail() {
  say "FAILED: $*"
  exit 1
}

packages=${1-}
if [ -z "$packages" ]; then
  packages=build/deb
  say "building"
  cuda=()
  ! command -v nvcc >/dev/null || cuda=(-DTROUPE_CUDA=ON)
  cmake -S . -B "$packages" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX=/usr -DTROUPE_TESTS=OFF "${cuda[@]}" >/dev/null
  cmake --build "$packages" >/dev/null
  (cd "$packages" && cpack -G DEB >/dev/null)
fi
program=$(readlink -f "$(ls -t "$packages"/troupe_*_amd64.deb | head -n 1)")
development=$(readlink -f "$(ls -t "$packages"/libtroupe-dev_*_amd64.deb | head -n 1)")

say "lintian"
lintian --fail-on error,warning --allow-root --tag-display-limit 0 "$program" "$development" || fail "lintian"

work=$(mktemp -d)
root=${CHROOT-$work/root}
server=
clean() {
  [ -z "$server" ] || kill "$server" 2>/dev/null || true
  mountpoint -q "$root/proc" && umount "$root/proc"
  rm -rf "$work"
}
trap clean EXIT

if [ -z "${CHROOT-}" ]; then
  say "debootstrap"
  debootstrap --variant=minbase bookworm "$root" \
    "$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | head -n 1)" >"$work/log" ||
    { tail "$work/log"; fail "debootstrap"; }
fi
mountpoint -q "$root/proc" || mount -t proc proc "$root/proc"
cp /etc/resolv.conf "$root/etc/"
cp "$program" "$development" "$root/root/"
inside=(chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive)
within() { "${inside[@]}" "$@"; }

say "install"
within apt-get -qq update
within apt-get -qq -y --no-install-recommends install "/root/$(basename "$program")" >"$work/log" 2>&1 ||
  { tail "$work/log"; fail "the package does not install"; }
within dpkg -L troupe | while read -r file; do [ -d "$root$file" ] || echo "$file"; done >"$work/files"
within apt-get -qq -s install "/root/$(basename "$development")" >"$work/log" ||
  { tail "$work/log"; fail "what libtroupe-dev needs cannot be had"; }

say "pages of help and completions"
for page in troupe troupe-serve troupe-run; do
  zgrep -q '^\.TH' "$root/usr/share/man/man1/$page.1.gz" || fail "there is no manual page of $page"
done
for file in bash-completion/completions/troupe zsh/vendor-completions/_troupe fish/vendor_completions.d/troupe.fish; do
  [ -s "$root/usr/share/$file" ] || fail "there is no /usr/share/$file"
done
[ "$(within stat -c '%U %a' /etc/troupe/troupe.toml)" = "root 644" ] || fail "the settings are not as they should be"
systemd-analyze security --offline=true --threshold=15 --root="$root" --no-pager troupe.service >"$work/log" 2>&1 ||
  { tail -n 3 "$work/log"; fail "the service may do too much"; }
tail -n 1 "$work/log"

say "start"
within troupe --version
"${inside[@]}" troupe serve --config /etc/troupe/troupe.toml --port 8097 --log-level off >"$work/log" 2>&1 &
server=$!
for _ in $(seq 120); do
  curl -fs http://127.0.0.1:8097/health >/dev/null && break
  kill -0 "$server" || { cat "$work/log"; fail "the server has ended"; }
  sleep 0.5
done
curl -fsS http://127.0.0.1:8097/v1/chat/completions -H 'Content-Type: application/json' -d '{
  "messages": [{"role": "user", "content": "Tell me a story about a fox"}], "max_tokens": 24, "temperature": 0}' |
  tee "$work/answer"
echo
grep -q '"completion_tokens":24' "$work/answer" || fail "the server's answer is not one of 24 tokens"
kill -TERM "$server"
wait "$server" || fail "the server ended with $?"
server=

if [ -n "${EXAMPLE-}" ]; then
  say "an example with libtroupe-dev"
  within apt-get -qq -y --no-install-recommends install g++ cmake make "/root/$(basename "$development")" >"$work/log" 2>&1 ||
    { tail "$work/log"; fail "libtroupe-dev does not install"; }
  cp -r examples/embed "$root/root/"
  within sh -c 'cd /root/embed && cmake -S . -B build && cmake --build build --target troupe_embed' >"$work/log" 2>&1 ||
    { tail -n 30 "$work/log"; fail "the example does not build with find_package(Troupe)"; }
  within /root/embed/build/troupe_embed /usr/share/troupe/storyteller | tail -n 1
  within sh -c 'cd /root/embed && g++ -std=c++20 main.cpp -o example $(pkg-config --cflags --libs troupe)' >"$work/log" 2>&1 ||
    { tail -n 30 "$work/log"; fail "the example does not build with pkg-config"; }
  within /root/embed/example /usr/share/troupe/storyteller | tail -n 1
fi

say "remove"
within apt-get -qq -y remove troupe >"$work/log" 2>&1 || fail "the package cannot be removed"
[ -e "$root/etc/troupe/troupe.toml" ] || fail "the settings went with the program"
within apt-get -qq -y purge troupe >"$work/log" 2>&1 || fail "the package cannot be purged"
while read -r file; do
  [ ! -e "$root$file" ] || fail "$file is left"
done <"$work/files"
[ ! -e "$root/etc/troupe" ] && [ ! -e "$root/usr/share/troupe" ] || fail "folders are left"
say "passed: $(basename "$program"), $(wc -l <"$work/files") files"
