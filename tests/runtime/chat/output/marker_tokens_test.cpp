// Marks that are special tokens: found in the tokenizer, kept in the text, allowed by guides, read as calls.
#include "runtime/chat/output/find_chat_format.hpp"
#include "runtime/guide/guide.hpp"
#include "runtime/techniques/guides/guide_sources.hpp"
#include "runtime/tokenizer/tokenizer.hpp"
#include "tests/runtime/chat/output/parsed_output.hpp"

using namespace troupe;
using namespace troupe::test;

namespace {

/// Bytes of a call's text, [TOOL_CALLS] as a special token, </s> as the one that ends.
std::shared_ptr<const tokenizer> marked_tokens() {
  std::string vocabulary;
  token_id next = 0;
  for (char c = '!'; c <= '~'; ++c)
    vocabulary += (vocabulary.empty() ? "" : ",") + std::string("\"") + (c == '"' || c == '\\' ? "\\" : "") + c +
      "\":" + std::to_string(next++);
  vocabulary += ",\"Ġ\":" + std::to_string(next);
  const auto added = [](int id, const char* text) {
    return R"({"id":)" + std::to_string(id) + R"(,"content":")" + text +
      R"(","special":true,"single_word":false,"lstrip":false,"rstrip":false,"normalized":false})";
  };
  return tokenizer::parse(R"({"added_tokens":[)" + added(next + 1, "[TOOL_CALLS]") + ',' + added(next + 2, "</s>") +
                            R"(],"model":{"type":"BPE","vocab":{)" + vocabulary +
                            R"(},"merges":[]},"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},)"
                            R"("decoder":{"type":"ByteLevel"}})",
                          "test");
}

} // namespace

TEST_CASE("marks that are special tokens are part of the text, for decoders, guides and parsers") {
  const auto tokens = marked_tokens();
  const auto format = find_chat_format("[TOOL_CALLS]");
  const auto markers = special_markers(format, *tokens);
  const auto mark = *tokens->id_of("[TOOL_CALLS]"), end = *tokens->id_of("</s>");
  CHECK(markers == std::vector<token_id>{mark});

  auto what = output_of("mistral");
  what->tools = {offered_tool("f", R"({"type":"object","properties":{"a":{"const":1}},"required":["a"]})")};
  what->choice = call_choice::named;
  const std::vector<token_id> ends{end};
  const auto vocabulary = guides::guide_vocabulary::of(*tokens, ends, markers);
  CHECK(guides::guide_vocabulary::of(*tokens, ends)->bytes(mark).empty());
  guides::guide_state state(guides::compile_guide(*guides::output_guide(*what, nullptr), vocabulary));
  std::vector<std::uint64_t> mask(vocabulary->words());
  state.mask(mask);
  const auto allowed = [&](token_id id) { return mask[static_cast<std::size_t>(id) / 64] >> (id % 64) & 1; };
  CHECK(allowed(mark));
  CHECK_FALSE(allowed(end));

  const auto ids = tokens->encode(R"([TOOL_CALLS][{"name": "f", "arguments": {"a": 1}}])", false);
  REQUIRE(ids.front() == mark);
  stream_decoder shown(tokens, true, markers), hidden(tokens, true);
  std::string text, without;
  for (const auto id : ids) {
    CHECK(state.advance(id));
    text += shown.push(id);
    without += hidden.push(id);
  }
  text += shown.push(end) + shown.finish();
  without += hidden.finish();
  CHECK(state.is_finished());
  CHECK(without == R"([{"name": "f", "arguments": {"a": 1}}])");
  CHECK(parse_output(what, text).calls == std::vector<std::pair<std::string, std::string>>{{"f", R"({"a": 1})"}});
  CHECK(parse_output(what, text).content.empty());
}
