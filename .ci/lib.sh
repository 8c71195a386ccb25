# Shell functions that run.sh and test.sh share: Debian packages, and the build of one preset. Sourced by bash, from the
# project's root.

build_packages=(
  g++ cmake ninja-build ccache pkg-config
  libcaf-dev libboost1.81-dev libboost-json1.81-dev libsimdjson-dev libcli11-dev libspdlog-dev prometheus-cpp-dev
  libtomlplusplus-dev doctest-dev libpcre2-dev libutf8proc-dev libxxhash-dev libedit-dev
)
test_packages=(python3-venv)

say() { printf '%s\n' "$*" >&2; }

fail() {
  say "$0: $*"
  exit 1
}

# Installs those of the named packages that are missing; silent and quick where none is.
install_packages() {
  command -v dpkg-query >/dev/null ||
    fail "this is no Debian system; install by hand what these packages of Debian 12 hold: $*"
  local missing=() package
  for package in "$@"; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || fail "packages are missing; as root, run: apt-get install ${missing[*]}"
    as_root=(sudo)
  fi
  say "Installing ${missing[*]}"
  "${as_root[@]}" apt-get update -qq || fail "apt-get update failed; these packages are missing: ${missing[*]}"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null ||
    fail "apt-get could not install: ${missing[*]}"
}

# How many compilers may run at once: one per core, but no more than memory has room for at 1.5 GB each.
build_jobs() {
  local cores room
  cores=$(nproc)
  room=$(awk '/MemAvailable/ { print int($2 / 1500000) }' /proc/meminfo)
  [ "$room" -lt 1 ] && room=1
  [ "$room" -lt "$cores" ] && echo "$room" || echo "$cores"
}

# build PRESET [CMAKE ARGUMENT...] -- [TARGET...]: configures and builds; all targets where none is named. What the
# tools say goes to build/PRESET.log, of which a failure shows the end.
build() {
  local preset=$1 configure=() targets=()
  shift
  while [ $# -gt 0 ] && [ "$1" != -- ]; do
    configure+=("$1")
    shift
  done
  shift || true
  [ $# -gt 0 ] && targets=(--target "$@")
  mkdir -p build
  local log=build/$preset.log
  [ -e "build/$preset/build.ninja" ] || say "Building ($preset); the first time takes some minutes. Log: $log"
  if ! { cmake --preset "$preset" "${configure[@]}" &&
    cmake --build --preset "$preset" -j "$(build_jobs)" "${targets[@]}"; } >"$log" 2>&1; then
    tail -n 40 "$log" >&2
    fail "the $preset build failed; all of its output is in $log"
  fi
}
