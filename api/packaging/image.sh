#!/usr/bin/env bash
# Makes an image for containers (OCI) of Debian's package: api/packaging/image.sh PACKAGE.deb [LAYOUT]
# LAYOUT, build/image by default, is an OCI layout with the image `troupe:VERSION`: skopeo copy oci:LAYOUT:VERSION ... sends it
# elsewhere, podman and buildah run it as oci:LAYOUT:VERSION. It holds Debian 12 as debootstrap's minbase has it and the package,
# runs as an ordinary user, and writes nothing, so that its root may be read-only.
# Needs root, and Debian's debootstrap and umoci. CHROOT names a folder with a bare Debian 12 to use (it is changed).
set -euo pipefail
[ $# -ge 1 ] || { sed -n '2,6s/^# *//p' "$0" >&2; exit 2; }
package=$(readlink -f "$1")
cd "$(dirname "$(readlink -f "$0")")/../.."
layout=${2-build/image}
user=65532
version=$(dpkg-deb -f "$package" Version)
version=${version%-*}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=${CHROOT-$work/root}

say() { printf '== %s\n' "$*" >&2; }

if [ -z "${CHROOT-}" ]; then
  say "debootstrap"
  debootstrap --variant=minbase bookworm "$root" \
    "$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | head -n 1)" >"$work/log" ||
    { tail "$work/log" >&2; exit 1; }
fi
say "the package"
cp /etc/resolv.conf "$root/etc/"
cp "$package" "$root/troupe.deb"
within() { chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive "$@"; }
within apt-get -qq update
within apt-get -qq -y --no-install-recommends install ca-certificates /troupe.deb >"$work/log" 2>&1 ||
  { tail "$work/log" >&2; exit 1; }
within useradd --system --uid $user --user-group --home-dir /var/lib/troupe --create-home --shell /usr/sbin/nologin troupe
# What only changes from day to day, or is of this machine.
rm -rf "$root"/troupe.deb "$root"/var/lib/apt/lists/* "$root"/var/cache/apt/* "$root"/var/cache/ldconfig "$root"/var/log/* \
  "$root"/var/cache/debconf/*-old "$root"/var/lib/dpkg/*-old "$root"/etc/resolv.conf "$root"/etc/machine-id "$root"/etc/hostname
: >"$root/etc/hostname"

say "the image"
rm -rf "$layout"
mkdir -p "$(dirname "$layout")"
umoci init --layout "$layout"
umoci new --image "$layout:$version"
umoci unpack --image "$layout:$version" "$work/bundle" >/dev/null 2>&1
rmdir "$work/bundle/rootfs"
mv "$root" "$work/bundle/rootfs"
umoci repack --image "$layout:$version" --history.created_by "debootstrap, $(basename "$package")" "$work/bundle" >/dev/null 2>&1
umoci config --image "$layout:$version" --config.user $user:$user --config.workingdir /var/lib/troupe \
  --config.env PATH=/usr/bin:/bin --config.env HOME=/var/lib/troupe \
  --config.entrypoint troupe --config.cmd serve --config.cmd --config --config.cmd /etc/troupe/troupe.toml \
  --config.cmd --host --config.cmd 0.0.0.0 --config.exposedports 8080/tcp --config.stopsignal SIGTERM \
  --config.label org.opencontainers.image.title=troupe --config.label "org.opencontainers.image.version=$version" \
  --config.label org.opencontainers.image.licenses=MIT
umoci gc --layout "$layout" >/dev/null 2>&1
say "$layout:$version, $(du -sh "$layout" | cut -f1)"
