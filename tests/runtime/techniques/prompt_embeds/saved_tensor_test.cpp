#include "runtime/techniques/prompt_embeds/saved_tensor.hpp"

#include "runtime/support/error.hpp"
#include "tests/test_data.hpp"

#include <doctest/doctest.h>

#include <fstream>
#include <iterator>

using namespace troupe;

TEST_CASE("A saved tensor whose storage has a name of any bytes is refused in a sentence that is UTF-8") {
  std::ifstream in(test_data() + "/../fuzz/seeds/prompt_embeds/float", std::ios::binary);
  std::string file{std::istreambuf_iterator<char>(in), {}};
  CHECK(parse_saved_tensor(file).rows == 2);
  using namespace std::string_literals;
  const auto name = file.find("X\1\0\0\0"
                              "0"s);
  REQUIRE(name != file.npos);
  file[name + 5] = '\xff';
  std::string said;
  try {
    parse_saved_tensor(file);
  } catch (const failure& f) {
    said = f.what();
  }
  CHECK(said == "`prompt_embeds` is no tensor that torch.save wrote: it has no file `/data/\\xff`");
}
