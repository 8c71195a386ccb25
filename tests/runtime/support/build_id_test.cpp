#include "runtime/support/machine/build_id.hpp"

#include "runtime/support/text/hex.hpp"

#include <doctest/doctest.h>

#include <fstream>
#include <iterator>

using namespace troupe;

TEST_CASE("A program's build id is the one in its file") {
  const auto id = build_id();
  REQUIRE(id.size() >= 16);
  CHECK(build_id() == id);
  std::string bytes("GNU\0", 4);
  for (std::size_t i = 0; i < id.size(); i += 2)
    bytes += static_cast<char>(hex_value(id[i]).value() << 4 | hex_value(id[i + 1]).value());
  std::ifstream file("/proc/self/exe", std::ios::binary);
  const std::string program(std::istreambuf_iterator<char>(file), {});
  CHECK(program.find(bytes) != program.npos);
}
