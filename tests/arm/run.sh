#!/usr/bin/env bash
# Cross-compiles for 64-bit ARM and runs tests in QEMU's emulation, once for each kind of processor: with NEON alone, with
# its dot products, with its products of int8 and bf16, and with SVE registers of 128, 256 and 512 bits.
#   tests/arm/run.sh              the kernels' tests: of products, attention, recurrent layers and adapters
#   tests/arm/run.sh program      builds everything, answers a prompt with the bundled model on each, and compares the answers
# Needs Debian 12; takes about half an hour. Times in the emulation say nothing about ARM processors.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/../.."
. .ci/lib.sh

what=${1:-kernels} sysroot=$PWD/build/arm-sysroot build=$PWD/build/arm
install_packages g++-aarch64-linux-gnu qemu-user-static cmake ninja-build doctest-dev

# Debian's arm64 packages, unpacked in a folder of their own: nothing of the system changes.
if [ ! -e "$sysroot/.whole" ]; then
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
  wanted=(libc6-dev libstdc++-12-dev)
  for package in "${build_packages[@]}"; do
    case $package in lib* | *-dev) wanted+=("$package") ;; esac
  done
  apt-get update -qq
  apt-get install -qq --download-only --no-install-recommends -y "${wanted[@]}" >/dev/null
  rm -rf "$sysroot"
  mkdir -p "$sysroot"
  for package in "$state"/cache/archives/*.deb; do
    dpkg-deb -x "$package" "$sysroot"
  done
  for folder in bin lib sbin; do # as an installed system has them
    [ -L "$sysroot/$folder" ] || { [ -d "$sysroot/$folder" ] && cp -a "$sysroot/$folder/." "$sysroot/usr/$folder/"; rm -rf "${sysroot:?}/$folder"; ln -s "usr/$folder" "$sysroot/$folder"; }
  done
  touch "$sysroot/.whole"
  unset APT_CONFIG
fi

layers=kernels target=troupe_kernels_tests
[ "$what" = program ] && layers="kernels;runtime;actors;api" target=troupe
cmake -S . -B "$build-$what" -G Ninja -DCMAKE_BUILD_TYPE=Release -DTROUPE_LAYERS="$layers" -DTROUPE_CUDA=OFF \
  -DCMAKE_TOOLCHAIN_FILE="$PWD/tests/arm/toolchain.cmake" -DTROUPE_SYSROOT="$sysroot" -DCMAKE_UNITY_BUILD=ON >"$build-$what.log"
cmake --build "$build-$what" -j "$(build_jobs)" --target $target >>"$build-$what.log" || fail "see $build-$what.log"

# Name and QEMU's processor.
processors=(
  "neon cortex-a53"
  "neon-dotprod neoverse-n1"
  "neon-i8mm max,sve=off"
  "sve-128 max,sve128=on,sve256=off,sve512=off"
  "sve-256 max,sve256=on,sve512=off"
  "sve-512 max,sve512=on,sve-default-vector-length=64"
)
tests="targets of ARM*,linear agrees*,a quantised linear layer agrees*,*ttention agrees*,*runed*,*low*rank*,*ecurr*"
failed=0
for each in "${processors[@]}"; do
  read -r name cpu <<<"$each"
  log "== $name"
  if [ "$what" = program ]; then
    answer=$(QEMU_CPU=$cpu qemu-aarch64-static -L "$sysroot" "$build-$what/troupe" run --quiet --temperature 0 --max-tokens 24 \
      --threads 1 --device "cpu:$name" "Once upon a time") || failed=1
    echo "$name: $answer"
  else
    QEMU_CPU=$cpu qemu-aarch64-static -L "$sysroot" "$build-$what/$target" -tc="$tests" || failed=1
  fi
done
exit $failed
