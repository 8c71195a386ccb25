#!/usr/bin/env bash
# Unpacks Debian's packages for 64-bit ARM, and all that they need, in a folder of their own: nothing of the system changes.
#   api/packaging/arm64/root.sh FOLDER PACKAGE...     a package's name, or a file NAME_arm64.deb
# It becomes what --sysroot and `qemu-aarch64-static -L` take. FOLDER/.shlibs has what the packages say of the libraries that
# they hold: name, version, package. A folder that is whole is left as it is. Ends with 77 where the packages cannot be had.
set -euo pipefail
folder=$(readlink -m "$1")
shift
[ ! -e "$folder/.whole" ] || exit 0
state=$(mktemp -d)
trap 'rm -rf "$state"' EXIT
mkdir -p "$state"/{state/lists/partial,cache/archives/partial}
touch "$state/state/status"
cat >"$state/apt.conf" <<CONF
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
Dir::State "$state/state";
Dir::State::status "$state/state/status";
Dir::Cache "$state/cache";
APT::Sandbox::User "root";
CONF
export APT_CONFIG=$state/apt.conf
{ apt-get update -qq &&
  apt-get install -qq --download-only --no-install-recommends -y "$@" >/dev/null; } || exit 77
rm -rf "$folder"
mkdir -p "$folder"
files=("$state"/cache/archives/*.deb)
for package in "$@"; do # apt leaves files where they are
  [ ! -f "$package" ] || files+=("$package")
done
for package in "${files[@]}"; do
  dpkg-deb -x "$package" "$folder"
  dpkg-deb -I "$package" shlibs >>"$folder/.shlibs" 2>/dev/null || true
done
for name in bin lib sbin; do # as an installed system has them
  [ -L "$folder/$name" ] || { [ -d "$folder/$name" ] && cp -a "$folder/$name/." "$folder/usr/$name/"; rm -rf "${folder:?}/$name"; ln -s "usr/$name" "$folder/$name"; }
done
touch "$folder/.whole"
