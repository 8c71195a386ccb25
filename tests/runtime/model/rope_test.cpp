#include "runtime/model/model_config.hpp"
#include "runtime/model/rope.hpp"
#include "runtime/support/json/json.hpp"
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

TEST_CASE("LongRoPE rotates all positions of a sequence by its length, with the border at the original context") {
  rope_config config{.type = rope_type::longrope, .theta = 10000, .factor = 4, .original_context = 16};
  config.short_divisors = {1, 1.5, 2, 3};
  config.long_divisors = {4, 8, 16, 32};
  CHECK(rope_border(config, 64) == 16);
  CHECK(rope_border(config, 17) == 16);
  CHECK(rope_border(config, 16) == 0); // no sequence gets there
  CHECK(rope_table(config, 8, 64, 16) == rope_table(config, 8, 64, 1));
  for (const int length : {1, 16, 17, 64}) {
    CAPTURE(length);
    const auto table = rope_table(config, 8, 64, length);
    const auto& divisors = length > 16 ? config.long_divisors : config.short_divisors;
    for (int p : {1, 15, 16, 63})
      for (int i = 0; i < 4; ++i) {
        CAPTURE(p);
        const double angle = p * std::pow(10000.0, -i / 4.0) / divisors[static_cast<std::size_t>(i)];
        CHECK(table[static_cast<std::size_t>(p * 8 + i)] == doctest::Approx(std::cos(angle)).epsilon(1e-4));
        CHECK(table[static_cast<std::size_t>(p * 8 + 4 + i)] == doctest::Approx(std::sin(angle)).epsilon(1e-4));
      }
  }
}

TEST_CASE("Only LongRoPE has a border: other rotations are the same for all lengths that a model serves") {
  rope_config config{.type = rope_type::dynamic, .theta = 10000, .factor = 2, .original_context = 16};
  CHECK(rope_border(config, 64) == 0);
  CHECK(inverse_frequencies(config, 8, 16) == inverse_frequencies(config, 8, 1)); // and models end there
  CHECK(inverse_frequencies(config, 8, 17) != inverse_frequencies(config, 8, 16));
  for (const auto type : {rope_type::plain, rope_type::linear, rope_type::yarn, rope_type::llama3}) {
    config.type = type;
    CHECK(rope_border(config, 64) == 0);
    CHECK(rope_table(config, 8, 32, 32) == rope_table(config, 8, 32, 1));
  }
}
