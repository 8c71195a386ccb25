#include "runtime/model/model_config.hpp"
#include "runtime/model/rope.hpp"
#include "runtime/support/json.hpp"
#include "tests/runtime/model/model_test_data.hpp"

#include <cmath>

using namespace troupe;
using namespace troupe::test;

namespace {

model_config config_of(json::value v) {
  return parse_model_config(json::document::parse(simdjson::minify(v), "config.json"));
}

double number(json::value v) {
  double result = 0;
  REQUIRE(!v.get(result));
  return result;
}

} // namespace

TEST_CASE("Inverse frequencies and attention factors are transformers', from configurations in both spellings") {
  const auto document = json::document::load(data() / "rope.json");
  json::array cases;
  REQUIRE(!document.root()["cases"].get(cases));
  REQUIRE(cases.size() > 20);
  for (json::value c : cases) {
    std::string_view name;
    REQUIRE(!c["name"].get(name));
    CAPTURE(name);
    const auto config = config_of(c["config"]);
    CHECK(config == config_of(c["old_config"]));
    const int head_dim = static_cast<int>(number(c["head_dim"])), length = static_cast<int>(number(c["length"]));
    CHECK(config.rope.attention_factor == doctest::Approx(number(c["attention_factor"])).epsilon(1e-12));
    const auto got = inverse_frequencies(config.rope, head_dim, length);
    json::array expected;
    REQUIRE(!c["inv_freq"].get(expected));
    REQUIRE(got.size() == expected.size());
    // Float32 powers differ by roundings between libraries; a wrong formula is off by far more.
    std::size_t i = 0;
    for (json::value e : expected) {
      CAPTURE(i);
      CHECK(std::abs(got[i] - number(e)) <= 1e-6 * number(e));
      ++i;
    }
  }
}

TEST_CASE("The rope table holds cosines, then sines, of each position times the frequencies") {
  rope_config config{
    .type = rope_type::yarn, .theta = 10000, .factor = 4, .original_context = 64, .attention_factor = 1.25};
  const int head_dim = 8, positions = 100;
  const auto table = rope_table(config, head_dim, positions);
  const auto frequencies = inverse_frequencies(config, head_dim, 1);
  REQUIRE(table.size() == 800);
  for (int p : {0, 1, 63, 99})
    for (int i = 0; i < 4; ++i) {
      CHECK(table[p * 8 + i] == doctest::Approx(1.25 * std::cos(p * frequencies[i])).epsilon(1e-5));
      CHECK(table[p * 8 + 4 + i] == doctest::Approx(1.25 * std::sin(p * frequencies[i])).epsilon(1e-5));
    }
}

TEST_CASE("A dynamically scaled position takes the frequencies of the length that it completes") {
  const rope_config config{.type = rope_type::dynamic, .theta = 10000, .factor = 2, .original_context = 16};
  const auto table = rope_table(config, 8, 64);
  const auto shorter = rope_table(config, 8, 20);
  CHECK(std::equal(shorter.begin(), shorter.end(), table.begin())); // and so not on the table's own length
  for (int p : {3, 15, 16, 40, 63}) {
    const auto frequencies = inverse_frequencies(config, 8, p + 1);
    for (int i = 0; i < 4; ++i)
      CHECK(table[p * 8 + i] == doctest::Approx(std::cos(p * frequencies[i])).epsilon(1e-5));
  }
  CHECK(inverse_frequencies(config, 8, 16) == inverse_frequencies(config, 8, 1));
  CHECK(inverse_frequencies(config, 8, 17) != inverse_frequencies(config, 8, 16));
}
