#!/usr/bin/env bash
# Makes one file that runs on any x86-64 Linux: troupe-VERSION-linux-x86_64, linked statically, with the storyteller inside.
# With SYSROOT=FOLDER (arm64/root.sh), one for 64-bit ARM: troupe-VERSION-linux-aarch64.
#   api/packaging/one_file.sh BUILD [FOLDER]     links from the finished build in BUILD, and leaves the file in FOLDER (build/one-file)
# It computes on CPUs alone: what is linked statically cannot load the plug-in for GPUs.
# Debian ships static archives of glibc, OpenSSL, PCRE2, utf8proc, xxHash, libedit and what that needs. CAF, simdjson,
# prometheus-cpp, spdlog, fmt and toml++ come as shared libraries only: their objects are compiled here, from Debian's source
# packages or, where headers have it all, from the headers. SOURCES names a folder with actor-framework, simdjson and
# prometheus-cpp unpacked; without it, apt-get fetches them, which needs no rights. JOBS: compilers at once.
set -euo pipefail
export LC_ALL=C # the order of names
root=$(dirname "$(readlink -f "$0")")/../..
[ $# -ge 1 ] || { sed -n '2,10s/^# *//p' "$0" >&2; exit 2; }
built=$(readlink -f "$1")
mkdir -p "${2-build/one-file}"
folder=$(readlink -f "${2-build/one-file}")
cd "$root"
root=$PWD
jobs=${JOBS-$(nproc)}
version=$(sed -n 's/^project(troupe VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
compiler=g++ assembler=as machine=x86_64
if [ -n "${SYSROOT-}" ]; then
  machine=aarch64 compiler="aarch64-linux-gnu-g++ --sysroot=$(readlink -f "$SYSROOT")" assembler=aarch64-linux-gnu-as
fi
program=$folder/troupe-$version-linux-$machine

say() { printf '== %s\n' "$*" >&2; }

fetch_sources() {
  SOURCES=$folder/sources
  mkdir -p "$SOURCES/lists/partial"
  cd "$SOURCES"
  local key=/usr/share/keyrings/debian-archive-keyring.gpg package
  echo "deb-src [signed-by=$key] $(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | head -n 1) bookworm main" >list
  local apt=(apt-get -qq -o "Dir::Etc::SourceList=$PWD/list" -o Dir::Etc::SourceParts=/dev/null -o "Dir::State::Lists=$PWD/lists"
    -o APT::Sandbox::User=root)
  "${apt[@]}" update
  for package in actor-framework simdjson prometheus-cpp; do
    ls -d "$package"-*/ >/dev/null 2>&1 && continue
    "${apt[@]}" source --download-only "$package" || true # Debian's own changes are not needed
    tar xf "$package"_*.orig.tar.*
  done
  cd "$root"
}

# compile NAME SOURCE FLAG...: one object, unless it is there.
compile() {
  local object=$folder/objects/$1.o source=$2
  shift 2
  [ -f "$object" ] || $compiler -std=c++17 -O2 -DNDEBUG -w -fno-ident "-ffile-prefix-map=$folder=." "-ffile-prefix-map=$SOURCES=." "$@" \
    -c "$source" -o "$object.new" || return 1
  [ -f "$object" ] || mv "$object.new" "$object"
}

# Files of a library, a dozen to a compiler: most of the time goes into the same headers.
compile_batches() {
  local name=$1 number=0 batch file
  shift
  printf '%s\n' "$@" | split -l 12 - "$folder/objects/$name-list-"
  for batch in "$folder/objects/$name-list-"*; do
    number=$((number + 1))
    sed 's/.*/#include "&"/' "$batch" >"$folder/objects/$name-$number.cpp"
    printf '%s %s\n' "$name-$number" "$folder/objects/$name-$number.cpp"
  done | xargs -P "$jobs" -L 1 bash -c 'compile "$1" "$2"' _
}

compile_libraries() {
  mkdir -p "$folder/objects"
  export -f compile
  export folder SOURCES compiler
  say "libraries of which Debian has no archives"
  compile_batches caf $(find "$SOURCES"/actor-framework-*/libcaf_core/src -name '*.cpp' | sort)
  compile simdjson "$(echo "$SOURCES"/simdjson-*/src/simdjson.cpp)" -I"$(echo "$SOURCES"/simdjson-*/include)" \
    -I"$(echo "$SOURCES"/simdjson-*/src)"
  local file
  for file in "$SOURCES"/prometheus-cpp-*/core/src/*.cc "$SOURCES"/prometheus-cpp-*/core/src/detail/*.cc; do
    compile "prometheus-$(basename "$file" .cc)" "$file" -I"$(echo "$SOURCES"/prometheus-cpp-*/core/include)" \
      -I"$(echo "$SOURCES"/prometheus-cpp-*/core/src)"
  done
  echo '#include <fmt/format-inl.h>
FMT_BEGIN_NAMESPACE
namespace detail {
template FMT_API auto dragonbox::to_decimal(float x) noexcept -> dragonbox::decimal_fp<float>;
template FMT_API auto dragonbox::to_decimal(double x) noexcept -> dragonbox::decimal_fp<double>;
template FMT_API auto locale_ref::get<std::locale>() const -> std::locale;
template FMT_API auto thousands_sep_impl(locale_ref) -> thousands_sep_result<char>;
template FMT_API auto decimal_point_impl(locale_ref) -> char;
template FMT_API void buffer<char>::append(const char*, const char*);
template FMT_API void vformat_to(buffer<char>&, string_view, basic_format_args<FMT_BUFFER_CONTEXT(char)>, locale_ref);
} // namespace detail
FMT_END_NAMESPACE' >"$folder/objects/fmt.cpp"
  compile fmt "$folder/objects/fmt.cpp"
  echo '#define SPDLOG_COMPILED_LIB
#define SPDLOG_FMT_EXTERNAL
#include <spdlog/spdlog.h>
#include <spdlog/spdlog-inl.h>
#include <spdlog/common-inl.h>
#include <spdlog/logger-inl.h>
#include <spdlog/pattern_formatter-inl.h>
#include <spdlog/details/backtracer-inl.h>
#include <spdlog/details/log_msg-inl.h>
#include <spdlog/details/log_msg_buffer-inl.h>
#include <spdlog/details/null_mutex.h>
#include <spdlog/async.h>
#include <spdlog/async_logger-inl.h>
#include <spdlog/details/periodic_worker-inl.h>
#include <spdlog/details/thread_pool-inl.h>
#include <spdlog/details/os-inl.h>
#include <spdlog/details/registry-inl.h>
#include <spdlog/sinks/base_sink-inl.h>
#include <spdlog/sinks/sink-inl.h>
#include <spdlog/sinks/stdout_sinks-inl.h>
#include <spdlog/sinks/stdout_color_sinks-inl.h>
#include <spdlog/sinks/ansicolor_sink-inl.h>
template class spdlog::sinks::base_sink<std::mutex>;
template class spdlog::sinks::base_sink<spdlog::details::null_mutex>;' >"$folder/objects/spdlog.cpp"
  compile spdlog "$folder/objects/spdlog.cpp"
  echo '#define TOML_IMPLEMENTATION
#define TOML_HEADER_ONLY 0
#include <toml++/toml.h>' >"$folder/objects/toml.cpp"
  compile toml "$folder/objects/toml.cpp"
}

# "NAME SIZE\n" and the bytes of each file (api/cli/bundled_files.hpp), as an object.
bundle() {
  local file name
  : >"$folder/bundle"
  for file in examples/storyteller/model/* examples/storyteller/draft/*; do
    name=storyteller/model/$(basename "$file")
    [[ $file == */draft/* ]] && name=storyteller/draft/$(basename "$file")
    printf '%s %s\n' "$name" "$(stat -c %s "$file")" >>"$folder/bundle"
    cat "$file" >>"$folder/bundle"
  done
  (cd "$folder" && echo '.section .rodata
.global troupe_bundle_begin, troupe_bundle_end
.balign 64
troupe_bundle_begin: .incbin "bundle"
troupe_bundle_end: .byte 0
.section .note.GNU-stack,"",@progbits' | $assembler -o objects/bundle.o -)
}

link_program() {
  say "linking"
  local archive=${SYSROOT-}/usr/lib/$machine-linux-gnu
  # glibc warns of getaddrinfo, as names are looked up by the libraries of the system that the program runs on, and of dlopen,
  # which is not called.
  $compiler -static -s -Wl,--gc-sections -Wl,--build-id=sha1 -Wl,-u,pthread_create -o "$program.new" \
    $(find "$built/api/cli/CMakeFiles/troupe.dir" -name '*.o') "$folder"/objects/bundle.o -Wl,--start-group \
    "$built"/api/cli/libtroupe_cli.a "$built"/api/libtroupe_*.a "$built"/actors/libtroupe_actors.a \
    "$built"/runtime/libtroupe_runtime.a "$built"/kernels/libtroupe_kernels.a \
    $(ls "$folder"/objects/{caf,simdjson,prometheus,fmt,spdlog,toml}*.o) \
    $archive/lib{pcre2-8,utf8proc,xxhash,ssl,crypto,edit,tinfo,bsd,md,z}.a -Wl,--end-group 2>"$folder/link.log" ||
    { cat "$folder/link.log" >&2; exit 1; }
  mv "$program.new" "$program"
}

[ -n "${SOURCES-}" ] || fetch_sources
compile_libraries
bundle
link_program
sha256sum "$program"
