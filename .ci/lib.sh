# Shell functions shared by run.sh and test.sh: Debian packages, and the build of one preset. Sourced by bash from the
# project's root.

build_packages=(
  g++ cmake ninja-build mold ccache pkg-config
  libcaf-dev libboost1.81-dev libsimdjson-dev libcli11-dev libspdlog-dev prometheus-cpp-dev
  libtomlplusplus-dev doctest-dev libpcre2-dev libutf8proc-dev libxxhash-dev libedit-dev libssl-dev
  esbuild node-markdown-it node-prismjs libjs-katex
)

log() { printf '%s\n' "$*" >&2; }

fail() {
  log "$0: $*"
  exit 1
}

# Installs the missing ones among the named packages; silent and quick when none is missing.
install_packages() {
  command -v dpkg-query >/dev/null ||
    fail "this is not Debian; install the equivalents of these Debian 12 packages: $*"
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
  log "Installing ${missing[*]}"
  "${as_root[@]}" apt-get update -qq || fail "apt-get update failed; these packages are missing: ${missing[*]}"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null ||
    fail "apt-get could not install: ${missing[*]}"
}

# Parallel compilers: one per core, at most one per 1.5 GB of available memory.
build_jobs() {
  local cores room
  cores=$(nproc)
  room=$(awk '/MemAvailable/ { print int($2 / 1500000) }' /proc/meminfo)
  [ "$room" -lt 1 ] && room=1
  [ "$room" -lt "$cores" ] && echo "$room" || echo "$cores"
}

# build PRESET [CMAKE ARGUMENT...] -- [TARGET...]: configures and builds the named targets, or all. Output goes to
# build/PRESET.log; a failure prints its end.
build() {
  local preset=$1 configure targets=()
  read -ra configure <<<"${TROUPE_CMAKE_ARGUMENTS-}"
  shift
  while [ $# -gt 0 ] && [ "$1" != -- ]; do
    configure+=("$1")
    shift
  done
  shift || true
  [ $# -gt 0 ] && targets=(--target "$@")
  mkdir -p build
  local log=build/$preset.log
  [ -e "build/$preset/build.ninja" ] || log "Building ($preset); the first time takes some minutes. Log: $log"
  if ! { cmake --preset "$preset" "${configure[@]}" &&
    cmake --build --preset "$preset" -j "$(build_jobs)" "${targets[@]}"; } >"$log" 2>&1; then
    tail -n 40 "$log" >&2
    fail "the $preset build failed; all of its output is in $log"
  fi
}
