// Files that are part of a program's own file: read without trust, written whole.
#include "api/cli/bundled_files.hpp"
#include "runtime/support/error.hpp"
#include "tests/api/cli/program.hpp"

#include <doctest/doctest.h>

#include <fstream>
#include <iterator>

using namespace troupe::cli;
namespace fs = std::filesystem;

namespace {

std::string text_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator(in), {}};
}

} // namespace

TEST_CASE("a bundle's files are read and written to folders, and what is damaged is refused") {
  const std::string bundle = "a/x.json 2\n{}b 0\nc d/e 3\n\n\n\n";
  const auto files = read_bundle(bundle);
  REQUIRE(files.size() == 3);
  CHECK(files[0].name == "a/x.json");
  CHECK(files[0].content == "{}");
  CHECK(files[1].content.empty());
  CHECK(files[2].name == "c d/e");
  const troupe::test::temporary_folder folder;
  unpack_bundle(files, folder.path / "new");
  CHECK(text_of(folder.path / "new/a/x.json") == "{}");
  CHECK(text_of(folder.path / "new/c d/e") == "\n\n\n");
  folder.write("new/a/x.json", "cut off");
  unpack_bundle(files, folder.path / "new"); // what has another size is written again
  CHECK(text_of(folder.path / "new/a/x.json") == "{}");
  CHECK_THROWS_AS(unpack_bundle(files, folder.path / "new/a/x.json"), troupe::failure);
  CHECK(read_bundle("").empty());
  for (const char* wrong :
       {"x", "x\n", "x 5\nabc", "x -1\n", "../x 0\n", "/x 0\n", " 0\n", "x 99999999999999999999\n", "x 1 \na"})
    CHECK_THROWS_AS(read_bundle(wrong), troupe::failure);
  CHECK(!bundled_files()); // of this program
}
