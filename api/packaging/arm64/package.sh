#!/usr/bin/env bash
# Cross-compiles for 64-bit ARM, on Debian 12, and makes in build/arm64 the package troupe_VERSION-1_arm64.deb and the one file
# one-file/troupe-VERSION-linux-aarch64. Takes 40 minutes on one core. JOBS: compilers at once.
# tests/packaging/arm64.sh tries both in QEMU.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/../../.."
. .ci/lib.sh
install_packages g++-aarch64-linux-gnu qemu-user-static cmake ninja-build "${build_packages[@]}"

build=$PWD/build/arm64 sysroot=$PWD/build/arm-sysroot # tests/arm/run.sh uses it, too
wanted=(libc6-dev libstdc++-12-dev)
for package in "${build_packages[@]}"; do
  case $package in lib* | *-dev) wanted+=("$package") ;; esac
done
api/packaging/arm64/root.sh "$sysroot" "${wanted[@]}"
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX=/usr -DTROUPE_TESTS=OFF -DTROUPE_CUDA=OFF \
  -DCMAKE_TOOLCHAIN_FILE="$PWD/api/packaging/arm64/toolchain.cmake" -DTROUPE_SYSROOT="$sysroot" >"$build.log"
cmake --build "$build" -j "${JOBS-$(build_jobs)}" >>"$build.log" || fail "see $build.log"

# dpkg-shlibdeps asks the system's packages, which are of another processor; the unpacked ones say the same of their libraries.
depends=$(aarch64-linux-gnu-readelf -d "$build/troupe" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | while read -r library; do
  name=${library%%.so*} version=${library#*.so.}
  [ "$name.so.$version" = "$library" ] || continue # the loader, by another name
  grep -m 1 "^$name $version " "$sysroot/.shlibs" || fail "no package has $library"
done | cut -d' ' -f3- | sort -u | paste -sd, | sed 's/,/, /g')
[ -n "$depends" ] || fail "the program needs no library"
(cd "$build" && cpack -G DEB -D CPACK_DEBIAN_PROGRAM_PACKAGE_DEPENDS="$depends" >>"$build.log") || fail "see $build.log"
SYSROOT=$sysroot api/packaging/one_file.sh "$build" "$build/one-file"
ls -l "$build"/troupe_*_arm64.deb "$build"/one-file/troupe-*-linux-aarch64
