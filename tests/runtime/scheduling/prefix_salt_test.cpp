#include "runtime/scheduling/prefix_salt.hpp"

#include <doctest/doctest.h>

#include <set>
#include <string>

using namespace troupe;

TEST_CASE("a client's salts are the same for the same text, differ for others, and nothing for none") {
  CHECK(client_salt("") == 0);
  CHECK(client_salt("a") == client_salt(std::string("a")));
  std::set<prefix_salt> all;
  for (const std::uint64_t own : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1} << 32, second_salt})
    for (const auto* text : {"", "a", "b", "aa", "a longer one, of 43 characters in base64 or so"})
      for (std::uint64_t rotation : {0, 1, 2})
        all.insert(salted(salted(salted(0, own), client_salt(text)), rotation > 0 ? rotation_salt + rotation : 0));
  CHECK(all.size() == 4 * 5 * 3);
}
