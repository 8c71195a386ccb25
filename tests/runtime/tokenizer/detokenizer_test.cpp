#include "runtime/support/text/simdjson.hpp"
#include "runtime/tokenizer/tokenizer.hpp"
#include "tests/test_data.hpp"

#include <doctest/doctest.h>

#include <random>
#include <string>
#include <vector>

using namespace troupe;

namespace {

struct streamed {
  std::string text;
  bool valid = true;         // every piece was UTF-8
  std::size_t non_empty = 0; // pieces before finish()
};

streamed stream(const std::shared_ptr<const tokenizer>& tokens, const std::vector<token_id>& ids, bool skip_special) {
  stream_decoder decoder(tokens, skip_special);
  streamed result;
  const auto add = [&](const std::string& piece) {
    result.valid = result.valid && simdjson::validate_utf8(piece);
    result.text += piece;
  };
  for (const token_id id : ids) {
    const auto piece = decoder.push(id);
    result.non_empty += !piece.empty();
    add(piece);
  }
  add(decoder.finish());
  return result;
}

std::shared_ptr<const tokenizer> with_decoder(const std::string& decoder) {
  return tokenizer::parse(
    R"({"model":{"type":"BPE","byte_fallback":true,"vocab":{"a":0,"▁b":1,"▁":2,"<0xF0>":3,"<0x9F>":4,
    "<0x98>":5,"<0x80>":6,"<0x41>":7," ":8,"":9,"▁▁t":10,"Ã":11,"©":12,"ab▁":13},"merges":[]},"decoder":)" +
      decoder + "}",
    "test");
}

} // namespace

TEST_CASE("streamed pieces are UTF-8 and concatenate to the full decode, for random tokens of every kind") {
  std::mt19937 random(1);
  for (const std::string name : {"llama-gqa", "llama-mha-tied", "qwen2", "mistral-swa"}) {
    CAPTURE(name);
    const auto tokens = tokenizer::load(golden(name));
    const auto size = static_cast<token_id>(tokens->vocab_size());
    std::vector<token_id> broken; // tokens that are not UTF-8 on their own
    for (token_id id = 0; id < size; ++id)
      if (!simdjson::validate_utf8(tokens->token_bytes(id)))
        broken.push_back(id);
    REQUIRE(broken.size() >= 100);
    for (int round = 0; round < 400; ++round) {
      std::vector<token_id> ids(random() % 40);
      for (auto& id : ids)
        id = random() % 2 ? broken[random() % broken.size()] : static_cast<token_id>(random() % (size + 3)) - 1;
      for (const bool skip : {false, true}) {
        const auto result = stream(tokens, ids, skip);
        CHECK(result.text == tokens->decode(ids, skip));
        CHECK(result.valid);
      }
    }
  }
}

TEST_CASE("real text streams without delay, and never half a character") {
  const std::string text =
    "The fox said: “naïve”, 你好，世界! 😀👨‍👩‍👧 Ünïcödé ½ नमस्ते.\n\tEnd";
  for (const std::string name : {"llama-gqa", "qwen3", "mistral-swa"}) {
    CAPTURE(name);
    const auto tokens = tokenizer::load(golden(name));
    const auto ids = tokens->encode(text, true);
    const auto result = stream(tokens, ids, true);
    CHECK(result.text == text);
    CHECK(result.valid);
    CHECK(result.non_empty > 20);
    // A text of plain words streams word by word.
    const auto plain = tokens->encode("Once upon a time", false);
    stream_decoder decoder(tokens, true);
    std::size_t delayed = 0;
    for (const token_id id : plain)
      delayed += decoder.push(id).empty();
    CHECK(delayed <= 1);
  }
}

TEST_CASE("every step of a decoder holds back text that may still change, and no more") {
  const std::vector<token_id> emoji = {3, 4, 5, 6};
  SUBCASE("a run of byte tokens waits for its end") {
    const auto tokens = with_decoder(R"({"type":"ByteFallback"})");
    stream_decoder decoder(tokens, false);
    for (const token_id id : emoji)
      CHECK(decoder.push(id) == "");
    CHECK(decoder.push(0) == "😀a");
    CHECK(decoder.finish() == "");
  }
  SUBCASE("a run of byte tokens that is spoilt becomes one replacement character per byte at once") {
    const auto tokens = with_decoder(R"({"type":"ByteFallback"})");
    stream_decoder decoder(tokens, false);
    CHECK(decoder.push(7) == ""); // "A" may still be part of an invalid run
    CHECK(decoder.push(6) == "\uFFFD\uFFFD");
    CHECK(decoder.push(7) == "\uFFFD");
    CHECK(decoder.push(0) == "a");
    CHECK(decoder.push(3) == "");
    CHECK(decoder.finish() == "\uFFFD");
  }
  SUBCASE("a literal may be completed by the next token where tokens are fused") {
    const auto tokens = with_decoder(R"({"type":"Sequence","decoders":[{"type":"Fuse"},
      {"type":"Replace","pattern":{"String":"▁▁t"},"content":"T"}]})");
    stream_decoder decoder(tokens, false);
    CHECK(decoder.push(0) == "a");
    CHECK(decoder.push(2) == "");
    CHECK(decoder.push(10) == "▁T");
    CHECK(decoder.push(13) == "ab");
    CHECK(decoder.finish() == "▁");
  }
  SUBCASE("trailing characters that may be stripped wait") {
    const auto tokens = with_decoder(R"({"type":"Sequence","decoders":[{"type":"Fuse"},
      {"type":"Strip","content":" ","start":1,"stop":2}]})");
    stream_decoder decoder(tokens, false);
    CHECK(decoder.push(8) == ""); // stripped at the start
    CHECK(decoder.push(0) == "a");
    CHECK(decoder.push(8) == "");
    CHECK(decoder.push(8) == "");
    CHECK(decoder.push(8) == " ");
    CHECK(decoder.push(9) == "");
    CHECK(decoder.push(0) == "  a");
    CHECK(decoder.push(8) == "");
    CHECK(decoder.finish() == "");
  }
  SUBCASE("byte-level characters are collected to UTF-8") {
    const auto tokens = with_decoder(
      R"({"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true})");
    stream_decoder decoder(tokens, false);
    CHECK(decoder.push(11) == "");
    CHECK(decoder.push(12) == "é");
    CHECK(decoder.push(11) == "");
    CHECK(decoder.push(0) == "\uFFFDa");
    CHECK(decoder.push(11) == "");
    CHECK(decoder.finish() == "\uFFFD");
  }
  SUBCASE("the first token loses its metaspace") {
    const auto tokens = with_decoder(
      R"({"type":"Metaspace","replacement":"▁","prepend_scheme":"always","split":true})");
    stream_decoder decoder(tokens, false);
    CHECK(decoder.push(1) == "b");
    CHECK(decoder.push(1) == " b");
  }
  SUBCASE("without a decoder tokens are words") {
    const auto tokens = with_decoder("null");
    stream_decoder decoder(tokens, false);
    CHECK(decoder.push(0) == "a");
    CHECK(decoder.push(1) == " ▁b");
    CHECK(decoder.push(99) == "");
    CHECK(decoder.push(-1) == "");
  }
}

TEST_CASE("a stream outlives its tokenizer's other owners, and can be moved") {
  auto tokens = with_decoder(
    R"({"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},"content":" "},
    {"type":"Replace","pattern":{"Regex":" +"},"content":"_"}]})");
  stream_decoder first(tokens, false);
  tokens.reset();
  CHECK(first.push(13) == "ab_");
  stream_decoder second = std::move(first);
  CHECK(second.push(10) == "_t");
  CHECK(second.finish() == "");
}

TEST_CASE("streaming a long text costs the same per token at its end as at its start") {
  const auto tokens = tokenizer::load(golden("mistral-swa"));
  const auto a = tokens->id_of("a"), byte = tokens->id_of("<0xE2>");
  REQUIRE(a);
  REQUIRE(byte);
  stream_decoder decoder(tokens, true);
  std::size_t bytes = 0;
  for (int i = 0; i < 300'000; ++i) // quadratic work would take minutes
    bytes += decoder.push(i < 150'000 ? *a : *byte).size();
  bytes += decoder.finish().size();
  CHECK(bytes == 150'000 + 3 * 150'000);
}
