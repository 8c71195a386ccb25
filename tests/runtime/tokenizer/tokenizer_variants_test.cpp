// Replays tests/data/tokenizers.json: many small tokenizers that differ in one part each, with the results of Hugging
// Face's `tokenizers` for random texts and ids (written by make_tokenizers.py).
#include "runtime/support/json/json.hpp"
#include "runtime/tokenizer/tokenizer.hpp"
#include "tests/test_data.hpp"

#include <doctest/doctest.h>

#include <cstdlib>
#include <string>
#include <vector>

using namespace troupe;

namespace {

std::vector<token_id> read_ids(json::value list) {
  std::vector<token_id> ids;
  for (json::value id : list.get_array())
    ids.push_back(static_cast<token_id>(id.get_int64().value()));
  return ids;
}

std::string streamed(const std::shared_ptr<const tokenizer>& tokens, const std::vector<token_id>& ids, bool skip) {
  stream_decoder stream(tokens, skip);
  std::string text;
  for (const token_id id : ids)
    text += stream.push(id);
  return text + stream.finish();
}

/// The file to replay. A larger one can be named for a thorough comparison.
std::string cases_file() {
  const char* other = std::getenv("TROUPE_TOKENIZER_CASES");
  return other ? other : test_data() + "/tokenizers.json";
}

} // namespace

TEST_CASE("tokenizers of many makes encode and decode as the tokenizers package does") {
  const auto file = json::document::load(cases_file());
  const auto models = *json::find(file.root(), "models");
  std::size_t compared = 0;
  for (json::value variant : json::find(file.root(), "tokenizers")->get_array()) {
    const std::string name(json::find(variant, "name")->get_string().value());
    CAPTURE(name);
    std::string description = simdjson::minify(*json::find(variant, "parts"));
    description.back() = ',';
    description += "\"model\":" + std::string(simdjson::minify(*json::find(models, *json::find(variant, "model")))) +
      "}";
    const auto tokens = tokenizer::parse(description, name);
    for (json::value c : json::find(variant, "encode")->get_array()) {
      const std::string text(c.at(0).get_string().value());
      CAPTURE(text);
      const auto plain = read_ids(c.at(1));
      CHECK(tokens->encode(text, false) == plain);
      if (tokens->most_bytes_per_token() > 0)
        CHECK(plain.size() * tokens->most_bytes_per_token() >= text.size());
      CHECK(tokens->encode(text, true) == (c.get_array().size() > 2 ? read_ids(c.at(2)) : plain));
      ++compared;
    }
    for (json::value c : json::find(variant, "decode")->get_array()) {
      const auto ids = read_ids(c.at(0));
      const std::string text(c.at(1).get_string().value());
      const std::string skipped(c.at(c.get_array().size() - 1).get_string().value());
      CAPTURE(simdjson::to_string(json::value(c.at(0))));
      CHECK(tokens->decode(ids, false) == text);
      CHECK(tokens->decode(ids, true) == skipped);
      CHECK(streamed(tokens, ids, false) == text);
      CHECK(streamed(tokens, ids, true) == skipped);
      ++compared;
    }
  }
  CHECK(compared > 1000);
}
