# cmake -DOUT=FILE -P Embed.cmake NAME...: writes a C++ file that holds the named files.
set(rows "")
math(EXPR last "${CMAKE_ARGC} - 1")
foreach(i RANGE 5 ${last})
  set(path "${CMAKE_ARGV${i}}")
  get_filename_component(name "${path}" NAME)
  file(READ "${path}" hex HEX)
  string(LENGTH "${hex}" digits)
  math(EXPR bytes "${digits} / 2")
  string(REGEX REPLACE "(................................................................)" "\\1\"\n    \"" hex "${hex}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "\\\\x\\1" hex "${hex}")
  string(APPEND rows "  {\"${name}\", {\"${hex}\", ${bytes}}},\n")
endforeach()
file(WRITE "${OUT}" "// Made by api/page/Embed.cmake.
#include \"api/server/page_files.hpp\"

namespace troupe {

namespace {

constexpr page_file embedded_page_files[] = {
${rows}};

} // namespace

std::span<const page_file> page_files() { return embedded_page_files; }

} // namespace troupe
")
