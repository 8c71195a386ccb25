// Two texts as one prompt, as cross-encoders read them.
#include "runtime/tokenizer/tokenizer.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <string>

using namespace troupe;

namespace {

std::shared_ptr<const tokenizer> words_with(const std::string& post_processor) {
  const std::string words = R"({"[UNK]":0,"<s>":1,"</s>":2,"a":3,"b":4,"c":5})";
  return tokenizer::parse(
    R"({"added_tokens":[{"id":1,"content":"<s>","special":true,"normalized":false,"single_word":false,"lstrip":false,
"rstrip":false},{"id":2,"content":"</s>","special":true,"normalized":false,"single_word":false,"lstrip":false,
"rstrip":false}],"pre_tokenizer":{"type":"BertPreTokenizer"},"post_processor":)" +
      post_processor + R"(,"model":{"type":"WordPiece","unk_token":"[UNK]","continuing_subword_prefix":"##",
"max_input_chars_per_word":100,"vocab":)" +
      words + "}}",
    "tokenizer.json");
}

token_pair pair_of(const std::string& post_processor, std::size_t most_second = 100) {
  return words_with(post_processor)->encode_pair("a b", "c c a", most_second);
}

using pair_ids = std::vector<token_id>;

} // namespace

TEST_CASE("Pairs of texts get the special tokens of their template, and say where the second type begins") {
  const std::string special = R"("special_tokens":{"<s>":{"id":"<s>","ids":[1],"tokens":["<s>"]},
"</s>":{"id":"</s>","ids":[2],"tokens":["</s>"]}})";
  const std::string single =
    R"("single":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],)";
  const auto bert = pair_of(R"({"type":"TemplateProcessing",)" + single +
                            R"("pair":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}},
{"SpecialToken":{"id":"</s>","type_id":0}},{"Sequence":{"id":"B","type_id":1}},{"SpecialToken":{"id":"</s>","type_id":1}}],)" +
                            special + "}");
  CHECK(bert.ids == pair_ids{1, 3, 4, 2, 5, 5, 3, 2});
  CHECK(bert.second == 4);
  const auto alone = pair_of(R"({"type":"TemplateProcessing",)" + single + special + "}");
  CHECK(alone.ids == pair_ids{3, 4, 5, 5, 3}); // no template for two
  CHECK(alone.second == 0);

  const auto older = pair_of(R"({"type":"BertProcessing","sep":["</s>",2],"cls":["<s>",1]})");
  CHECK(older.ids == pair_ids{1, 3, 4, 2, 5, 5, 3, 2});
  CHECK(older.second == 4);
  const auto roberta = pair_of(
    R"({"type":"RobertaProcessing","sep":["</s>",2],"cls":["<s>",1],"trim_offsets":true,"add_prefix_space":true})", 2);
  CHECK(roberta.ids == pair_ids{1, 3, 4, 2, 2, 5, 5, 2}); // of the second text, two tokens
  CHECK(roberta.second == 0);
  CHECK(pair_of("null").ids == pair_ids{3, 4, 5, 5, 3});
}

TEST_CASE("A template for pairs with a third text, or a special token that is none, is refused") {
  const std::string begin = R"({"type":"TemplateProcessing","single":[{"Sequence":{"id":"A","type_id":0}}],"pair":[)";
  CHECK_THROWS_AS(pair_of(begin + R"({"Sequence":{"id":"C","type_id":0}}],"special_tokens":{}})"), failure);
  CHECK_THROWS_AS(pair_of(begin + R"({"SpecialToken":{"id":"<s>","type_id":0}}],"special_tokens":{}})"), failure);
}

TEST_CASE("A text that is cut keeps the special tokens around it") {
  const auto tokens = words_with(R"({"type":"BertProcessing","sep":["</s>",2],"cls":["<s>",1]})");
  CHECK(tokens->encode_cut("a b c", 100) == tokens->encode("a b c", true));
  CHECK(tokens->encode_cut("a b c", 5) == pair_ids{1, 3, 4, 5, 2});
  CHECK(tokens->encode_cut("a b c", 4) == pair_ids{1, 3, 4, 2});
  CHECK(tokens->encode_cut("a b c", 1) == pair_ids{1, 2});
  CHECK(words_with("null")->encode_cut("a b c", 2) == pair_ids{3, 4});
}

TEST_CASE("In plain texts, special tokens and other marks are words as any other") {
  const auto tokens = words_with(R"({"type":"BertProcessing","sep":["</s>",2],"cls":["<s>",1]})");
  CHECK(tokens->encode("a </s> b", false) == pair_ids{3, 2, 4});
  const auto plain = tokens->encode_plain("a </s> b", {});
  CHECK(plain.front() == 3);
  CHECK(plain.back() == 4);
  CHECK(std::ranges::find(plain, 2) == plain.end());
  CHECK(tokens->specials_in("a </s> b</s><s>") == std::vector<std::string_view>{"</s>", "</s>", "<s>"});
  CHECK(tokens->specials_in("a b").empty());
  const auto around = tokens->encode_around("a </s> b </s>", false, std::vector<std::size_t>{2});
  CHECK(around.front() == 3);
  CHECK(around.back() == 2);
  CHECK(std::ranges::count(around, 2) == 1);
  const auto marked = tokenizer::parse(R"({"added_tokens":[{"id":3,"content":"<m>","special":false,"normalized":false,
"single_word":false,"lstrip":false,"rstrip":false}],"pre_tokenizer":{"type":"BertPreTokenizer"},"model":{"type":
"WordPiece","unk_token":"[UNK]","continuing_subword_prefix":"##","max_input_chars_per_word":100,
"vocab":{"[UNK]":0,"a":1,"m":2}}})",
                                       "tokenizer.json");
  const pair_ids marks{3};
  CHECK(marked->encode_plain("a<m>", {}) == pair_ids{1, 3});
  CHECK(marked->encode_plain("a<m>", marks) == pair_ids{1, 0, 2, 0});
}
