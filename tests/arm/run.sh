#!/usr/bin/env bash
# Cross-compiles for 64-bit ARM and runs tests in QEMU's emulation, once for each kind of processor: with NEON alone, with
# its dot products, with its products of int8 and bf16, and with SVE registers of 128, 256 and 512 bits.
#   tests/arm/run.sh              the kernels' tests: of products, attention, recurrent layers and adapters
#   tests/arm/run.sh quick        fewer of them on two kinds, to see that changes compile and round alike
#   tests/arm/run.sh program      builds everything; answers.py compares what the bundled model answers on each kind, and
#                                 golden checkpoints with transformers; a random crowd of the engine's tests
# Needs Debian 12; the last takes about half an hour. Ends with 77 where Debian's packages cannot be had. Times in the
# emulation say nothing about ARM processors.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/../.."
. .ci/lib.sh

what=${1:-kernels} build=$PWD/build/arm
layers=kernels targets=(troupe_kernels_tests) sets= sysroot=$PWD/build/arm-sysroot-kernels
wanted=(libc6-dev libstdc++-12-dev doctest-dev)
case $what in
  kernels) ;;
  quick) sets="neon_i8mm;sve_256" ;;
  program)
    layers="kernels;runtime;actors;api" targets=(troupe troupe_engine_tests) sysroot=$PWD/build/arm-sysroot
    for package in "${build_packages[@]}"; do
      case $package in lib* | *-dev) wanted+=("$package") ;; esac
    done
    ;;
  *) fail "there is no \`$what\`: quick, kernels or program" ;;
esac
(install_packages g++-aarch64-linux-gnu qemu-user-static cmake ninja-build doctest-dev) || exit 77

api/packaging/arm64/root.sh "$sysroot" "${wanted[@]}"

cmake -S . -B "$build-$what" -G Ninja -DCMAKE_BUILD_TYPE=Release -DTROUPE_LAYERS="$layers" -DTROUPE_CUDA=OFF \
  ${sets:+-DTROUPE_INSTRUCTION_SETS="$sets"} -DCMAKE_TOOLCHAIN_FILE="$PWD/api/packaging/arm64/toolchain.cmake" \
  -DTROUPE_SYSROOT="$sysroot" >"$build-$what.log"
cmake --build "$build-$what" -j "$(build_jobs)" --target "${targets[@]}" >>"$build-$what.log" || fail "see $build-$what.log"

# Name and QEMU's processor; bench/count_instructions.py has them, too.
processors=(
  "neon=cortex-a53"
  "neon-dotprod=neoverse-n1"
  "neon-i8mm=max,sve=off"
  "sve-128=max,sve128=on,sve256=off,sve512=off"
  "sve-512=max,sve512=on,sve-default-vector-length=64"
  "sve-256=max,sve256=on,sve512=off"
)
emulator="qemu-aarch64-static -L $sysroot"
failed=0
if [ "$what" = program ]; then
  tests/arm/answers.py --emulator "$emulator" "$build-$what/troupe" "${processors[@]}" || failed=1
  log "== crowds, sve-256"
  QEMU_CPU=${processors[-1]#*=} $emulator "$build-$what/troupe_engine_tests" -tc="crowds of requests with and without adapters*" ||
    failed=1
  exit $failed
fi

tests="*targets of ARM*,linear agrees*,a quantised linear layer agrees*,*ttention agrees*,*runed*,*low*rank*,*ecurr*"
[ "$what" = quick ] &&
  processors=("${processors[2]}" "${processors[-1]}") tests="*targets of ARM*,*agree with loops*"
for each in "${processors[@]}"; do
  log "== ${each%%=*}"
  QEMU_CPU=${each#*=} $emulator "$build-$what/troupe_kernels_tests" -tc="$tests" || failed=1
done
exit $failed
