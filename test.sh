#!/usr/bin/env bash
# Installs missing packages, builds and runs tests. The last line counts test cases: N passed, N failed, N skipped.
#   ./test.sh                                 everything
#   ./test.sh format unit arm asan tsan e2e   or parts of it:
#     format   checks that all C++ is formatted with .clang-format, that folders include what their READMEs allow, that
#              units stand in them, that few files name a technique, that public headers reach no libraries and give no
#              warnings, that nothing asks the locale, that planted patches apply, and that what changed since the last
#              tag compiles without its neighbours
#     unit     the tests of the release build, including those that run the program
#     arm      tests of the kernels for 64-bit ARM, in QEMU; skipped where Debian's packages for it cannot be had
#     asan     all unit tests under AddressSanitizer and UndefinedBehaviorSanitizer
#     tsan     the tests of kernels/ and runtime/ under ThreadSanitizer
#     e2e      tests of the server with public Python clients
# e2e waits much, so with asan or tsan it runs beside their builds, which get the time that it leaves, and its output comes
# when it ends. Tests with sanitizers begin after it.
set -uo pipefail
cd "$(dirname "$(readlink -f "$0")")" || exit 1
. .ci/lib.sh

parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(format unit arm asan tsan e2e)
for part in "${parts[@]}"; do
  case $part in
    format | unit | arm | asan | tsan | e2e) ;;
    *)
      log "$0: there is no part \`$part\`; the parts are format, unit, arm, asan, tsan and e2e"
      exit 2
      ;;
  esac
done

wanted() { [[ " ${parts[*]} " == *" $1 "* ]]; }

passed=0 failed=0 skipped=0
beside= # the process of e2e while it runs beside builds

# Ends what runs beside, with all of its servers, when the script is interrupted.
trap '[ -z "$beside" ] || kill -- "-$beside" 2>/dev/null' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# count LOG STATUS: adds the summaries of doctest and pytest in a log to the totals. A failure that no summary shows, such
# as a crash or a sanitizer's report, counts as one.
count() {
  local log=$1 status=$2 before=$failed p f s
  read -r p f s <<<"$(awk '
    /\[doctest\] test cases:/ {
      gsub(/\033\[[0-9;]*m/, ""); split($0, part, "|")
      split(part[2], a, " "); split(part[3], b, " "); split(part[4], c, " ")
      p += a[1]; f += b[1]; s += c[1]
    }
    /^=+ .* in [0-9.]+s.*=+$/ {
      for (i = 2; i <= NF; i++) {
        if ($i ~ /^passed/) p += $(i - 1)
        if ($i ~ /^(failed|error)/) f += $(i - 1)
        if ($i ~ /^skipped/) s += $(i - 1)
      }
    }
    END { print p + 0, f + 0, s + 0 }' "$log")"
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
  [ "$status" -ne 0 ] && [ "$failed" -eq "$before" ] && failed=$((failed + 1))
  return 0
}

# run_tests NAME COMMAND...: shows the command's output and counts its results.
run_tests() {
  local name=$1 log=build/tests-$1.log
  shift
  log "== $name"
  "$@" 2>&1 | tee "$log"
  count "$log" "${PIPESTATUS[0]}"
}

# built ARGUMENT...: runs build, with the time that e2e leaves. A failure counts as one failed test, and the other parts
# still run.
built() {
  ([ -z "$beside" ] || renice -n 19 -p "$BASHPID" >/dev/null; build "$@") || ! failed=$((failed + 1))
}

# Counts as a test case for each check.
format() {
  local check
  log "== format"
  for check in formatted .ci/rooms .ci/units .ci/techniques .ci/headers .ci/locale .ci/patches .ci/alone; do
    "$check" && passed=$((passed + 1)) || failed=$((failed + 1))
  done
}

formatted() {
  find kernels runtime actors api tests examples \( -name '*.cpp' -o -name '*.hpp' -o -name '*.cu' \) -print0 |
    xargs -0 clang-format --dry-run -Werror
}

unit() {
  built release -DTROUPE_INSTRUCTION_SETS=all -- || return
  run_tests unit ctest --preset release --parallel "$(nproc)" --verbose --timeout 3600
}

arm() {
  local status others=$skipped
  log "== arm"
  tests/arm/run.sh quick 2>&1 | tee build/tests-arm.log
  status=${PIPESTATUS[0]}
  if [ "$status" -eq 77 ]; then
    log "arm: skipped, as Debian's packages for it could not be had"
    skipped=$((skipped + 1))
  else
    count build/tests-arm.log "$status"
    skipped=$others # doctest counts what is not on the list
  fi
}

asan() {
  built release -DTROUPE_INSTRUCTION_SETS=all -- troupe_test_cases || return # compiled once for both
  ninja -C build/release -t cleandead >/dev/null # objects of batches that are no more
  built asan "-DTROUPE_TEST_OBJECTS=$PWD/build/release" -- || return
  finish_e2e
  run_tests asan env ASAN_OPTIONS=detect_stack_use_after_return=1 UBSAN_OPTIONS=print_stacktrace=1 \
    ctest --preset asan --parallel "$(nproc)" --verbose --timeout 3600
}

tsan() {
  built tsan "-DTROUPE_LAYERS=kernels;runtime" -- || return
  finish_e2e
  run_tests tsan ctest --preset tsan --parallel "$(nproc)" --verbose --timeout 3600
}

# Installs the Python packages if they are missing, and runs the tests.
run_e2e() {
  local pip=(.venv/bin/pip install --quiet --disable-pip-version-check) needs=tests/e2e/requirements
  if [ ! -x .venv/bin/pytest ] || [ $needs.txt -nt .venv/bin/pytest ] || [ $needs-alone.txt -nt .venv/bin/pytest ]; then
    python3 -m venv .venv && "${pip[@]}" -r $needs.txt && "${pip[@]}" --no-deps -r $needs-alone.txt ||
      fail "cannot install $needs.txt and $needs-alone.txt into .venv"
    touch .venv/bin/pytest
  fi
  .venv/bin/python -m pytest tests/e2e
}

e2e() {
  built release -- troupe troupe_embedded_server || return
  if ! wanted asan && ! wanted tsan; then
    run_tests e2e run_e2e
    return
  fi
  log "== e2e, beside the builds with sanitizers; its output follows when it ends"
  set -m # a process group of its own, where Ctrl-C is not ignored: tests of the terminal need it
  run_e2e </dev/null >build/tests-e2e.log 2>&1 &
  beside=$!
  set +m
}

# Waits for e2e where it runs beside the builds, shows its output and counts its results.
finish_e2e() {
  [ -n "$beside" ] || return 0
  local status=0
  wait "$beside" || status=$?
  beside=
  log "== e2e"
  cat build/tests-e2e.log
  count build/tests-e2e.log "$status"
}

mkdir -p build
packages=("${build_packages[@]}" locales)
wanted e2e && packages+=(python3-venv openssl curl prometheus chromium node-typescript golang-github-yuin-goldmark-dev)
wanted format && packages+=(clang-format patch python3)
install_packages "${packages[@]}"
for part in format unit arm e2e asan tsan; do
  wanted "$part" && "$part"
done
finish_e2e # no test with sanitizers waited for it
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
