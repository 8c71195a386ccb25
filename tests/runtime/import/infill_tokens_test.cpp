// Which tokens a model fills in a middle with, and the prompts that are made of them.
#include "runtime/import/infill_tokens.hpp"
#include "runtime/tokenizer/tokenizer.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

using namespace troupe;

namespace {

std::shared_ptr<const tokenizer> with_tokens(const std::vector<std::string>& names) {
  std::string added;
  for (std::size_t i = 0; i < names.size(); ++i)
    added += (i ? "," : "") + (R"({"id":)" + std::to_string(3 + i)) + R"(,"content":")" + names[i] +
      R"(","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true})";
  return tokenizer::parse(R"({"version":"1.0","added_tokens":[)" + added +
                            R"(],"normalizer":null,"pre_tokenizer":null,"post_processor":null,"decoder":null,)"
                            R"("model":{"type":"BPE","vocab":{"a":0,"b":1,"c":2},"merges":[]}})",
                          "test");
}

std::vector<token_id> encode_letters(std::string_view text) {
  std::vector<token_id> ids;
  for (const char c : text)
    ids.push_back(c == 'a' ? 0 : c == 'b' ? 1 : 2);
  return ids;
}

} // namespace

TEST_CASE("a model's tokens are found by the names that its kin uses") {
  const auto qwen = find_infill(*with_tokens(
    {"<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"}));
  REQUIRE(qwen);
  CHECK(qwen->prefix == 3);
  CHECK(qwen->middle == 4);
  CHECK(qwen->suffix == 5);
  CHECK_FALSE(qwen->suffix_first);
  CHECK(qwen->ends() == std::vector<token_id>{6, 7, 8});
  const auto code = find_infill(*with_tokens({"\u2581<PRE>", "\u2581<SUF>", "\u2581<MID>", "\u2581<EOT>"}));
  REQUIRE(code);
  CHECK(code->ends() == std::vector<token_id>{6});
  const auto codestral = find_infill(*with_tokens({"[PREFIX]", "[SUFFIX]"}));
  REQUIRE(codestral);
  CHECK_FALSE(codestral->middle);
  CHECK(codestral->suffix_first);
  CHECK_FALSE(find_infill(*with_tokens({"<|fim_prefix|>", "<|fim_suffix|>"}))); // no middle
  CHECK_FALSE(find_infill(*with_tokens({})));
}

TEST_CASE("what a file names comes first") {
  const auto plain = with_tokens({"x", "y", "z"});
  const auto named = find_infill(*plain, {.prefix = 4, .suffix = 5, .middle = 3, .pad = 2});
  REQUIRE(named);
  CHECK(named->prefix == 4);
  CHECK(named->middle == 3);
  CHECK(named->ends() == std::vector<token_id>{2});
  CHECK_FALSE(find_infill(*plain, {.prefix = 4, .suffix = 5}));
  CHECK_FALSE(find_infill(*plain, {.prefix = 4, .middle = 5}));
  // A file does not say the order; the tokens' names do.
  const auto seed = with_tokens({"<[fim-prefix]>", "<[fim-suffix]>", "<[fim-middle]>"});
  CHECK(find_infill(*seed, {.prefix = 3, .suffix = 4, .middle = 5})->suffix_first);
}

TEST_CASE("a prompt has prefix, suffix and other files where the model expects them") {
  const std::vector<token_id> begin{9}, before{0}, behind{1};
  infill_tokens with{.prefix = 10, .suffix = 11, .middle = 12};
  using ids = std::vector<token_id>;
  CHECK(infill_prompt(with, begin, before, behind, {}, encode_letters) == ids{9, 10, 0, 11, 1, 12});
  CHECK(infill_prompt(with, {}, {}, {}, {}, encode_letters) == ids{10, 11, 12});
  with.suffix_first = true;
  CHECK(infill_prompt(with, begin, before, behind, {}, encode_letters) == ids{9, 11, 1, 10, 0, 12});
  with.middle = std::nullopt;
  CHECK(infill_prompt(with, begin, before, behind, {}, encode_letters) == ids{9, 11, 1, 10, 0});
  with = {.prefix = 10, .suffix = 11, .middle = 12, .repository = 13, .file = 14};
  const std::vector<infill_context> others{{"a", "b"}, {"", "a"}};
  const auto prompt = infill_prompt(with, begin, before, behind, others, encode_letters);
  CHECK(prompt.front() == 9);
  CHECK(prompt[1] == 13);
  CHECK(std::vector(prompt.end() - 5, prompt.end()) == ids{10, 0, 11, 1, 12});
  CHECK(std::ranges::count(prompt, 14) == 3); // each file's, and this one's
}
