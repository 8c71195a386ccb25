// The files of the web page (api/page/), which CMake compiles into the program.
#pragma once

#include <span>
#include <string_view>

namespace troupe {

struct page_file {
  std::string_view name; // "main.js"
  std::string_view content;
};

std::span<const page_file> page_files();

} // namespace troupe
