#include "runtime/json.hpp"
#include "runtime/tokenizer.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

using namespace troupe;

namespace {

const std::string golden = TROUPE_TEST_DATA "/golden/";
const char* const checkpoints[] = {"llama-gqa", "llama-mha-tied", "llama-mqa-rope3", "qwen2", "qwen3", "mistral-swa"};

std::vector<token_id> ids_of(json::value list) {
  std::vector<token_id> ids;
  for (json::value id : list.get_array())
    ids.push_back(static_cast<token_id>(id.get_int64().value()));
  return ids;
}

std::string text_of(json::value v) { return std::string(v.get_string().value()); }

} // namespace

TEST_CASE("texts of the reference checkpoints become the reference ids and back") {
  for (const std::string name : checkpoints) {
    CAPTURE(name);
    const auto tokens = tokenizer::load(golden + name);
    const auto expected = json::document::load(golden + name + "/expected.json");
    int compared = 0;
    for (json::value c : json::find(expected.root(), "tokenize")->get_array()) {
      const auto text = text_of(*json::find(c, "text"));
      CAPTURE(text);
      CHECK(tokens->encode(text, true) == ids_of(*json::find(c, "ids")));
      const auto plain = ids_of(*json::find(c, "ids_no_special"));
      CHECK(tokens->encode(text, false) == plain);
      CHECK(tokens->decode(plain, true) == text_of(*json::find(c, "decoded")));
      CHECK(tokens->decode(plain, false) == text_of(*json::find(c, "decoded_with_special")));
      ++compared;
    }
    CHECK(compared > 10);
  }
}

TEST_CASE("prompts and rendered conversations of the reference checkpoints become the reference ids") {
  for (const std::string name : checkpoints) {
    CAPTURE(name);
    const auto tokens = tokenizer::load(golden + name);
    const auto expected = json::document::load(golden + name + "/expected.json");
    for (json::value c : json::find(expected.root(), "cases")->get_array())
      CHECK(tokens->encode(text_of(*json::find(c, "text")), true) == ids_of(*json::find(c, "ids")));
    int conversations = 0;
    for (json::value c : json::find(expected.root(), "chat")->get_array())
      if (const auto rendered = json::find(c, "rendered")) {
        CHECK(tokens->encode(text_of(*rendered), false) == ids_of(*json::find(c, "ids")));
        ++conversations;
      }
    CHECK(conversations > 0);
  }
}
