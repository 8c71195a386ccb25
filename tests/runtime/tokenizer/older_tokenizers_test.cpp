// Replays tests/data/older_tokenizers: SentencePiece models, files of tiktoken and vocabularies in GGUF, with the
// results of the packages that made them (written by make_older_tokenizers.py). And files that are damaged or hostile.
#include "runtime/import/model_source.hpp"
#include "runtime/support/json/json.hpp"
#include "runtime/tokenizer/formats/sentencepiece_file.hpp"
#include "runtime/tokenizer/formats/tiktoken_file.hpp"
#include "runtime/tokenizer/tokenizer.hpp"
#include "tests/test_data.hpp"

#include <doctest/doctest.h>

#include <bit>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>

using namespace troupe;

namespace {

/// The folder to replay. A larger one can be named for a thorough comparison.
std::filesystem::path older_tokenizers() {
  const char* other = std::getenv("TROUPE_OLDER_TOKENIZERS");
  return other ? other : test_data() + "/older_tokenizers";
}

std::string older_content(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<token_id> older_ids(json::value list) {
  std::vector<token_id> ids;
  for (json::value id : list.get_array())
    ids.push_back(static_cast<token_id>(id.get_int64().value()));
  return ids;
}

/// A folder that holds one file.
class folder_of_one {
public:
  folder_of_one(const std::string& name, const std::string& content)
    : path_(std::filesystem::temp_directory_path() / "troupe_older_tokenizer") {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
    add(name, content);
  }
  ~folder_of_one() { std::filesystem::remove_all(path_); }
  void add(const std::string& name, const std::string& content) const {
    std::ofstream(path_ / name, std::ios::binary) << content;
  }
  std::string failure_of_load() const {
    try {
      tokenizer::load(path_);
    } catch (const failure& f) {
      const std::string message = f.what(), folder = path_.string() + "/";
      return message.starts_with(folder) ? message.substr(folder.size()) : message;
    }
    return "accepted";
  }
  std::shared_ptr<const tokenizer> load() const { return tokenizer::load(path_); }

private:
  std::filesystem::path path_;
};

// Protocol buffers: a field of bytes, a number, a float.
std::string bytes_field(int number, const std::string& bytes) {
  return std::string{static_cast<char>(number << 3 | 2), static_cast<char>(bytes.size())} + bytes;
}
std::string number_field(int number, int value) {
  std::string field{static_cast<char>((number << 3 & 0x7F) | (number > 15 ? 0x80 : 0))};
  if (number > 15)
    field += static_cast<char>(number >> 4);
  return field + static_cast<char>(value);
}
std::string piece_field(const std::string& text, float score, int kind) {
  const auto bits = std::bit_cast<std::uint32_t>(score);
  std::string field{static_cast<char>(2 << 3 | 5)};
  for (int i = 0; i < 4; ++i)
    field += static_cast<char>(bits >> 8 * i & 0xFF);
  return bytes_field(1, bytes_field(1, text) + field + number_field(3, kind));
}

double processor_seconds(const tokenizer& tokens, const std::string& text) {
  const auto started = std::clock();
  tokens.encode(text, true);
  return static_cast<double>(std::clock() - started) / CLOCKS_PER_SEC;
}

} // namespace

TEST_CASE("tokenizers in older formats encode and decode as the packages that made them") {
  const auto file = json::document::load(older_tokenizers() / "cases.json");
  std::size_t compared = 0;
  for (json::value entry : file.root().get_array()) {
    const std::string name(json::find(entry, "folder")->get_string().value());
    CAPTURE(name);
    const auto tokens = open_tokenizer((older_tokenizers() / name).string());
    for (json::value c : json::find(entry, "cases")->get_array()) {
      const std::string text(c.at(0).get_string().value());
      CAPTURE(text);
      const auto ids = older_ids(c.at(1));
      CHECK(tokens->encode(text, false) == ids);
      if (c.get_array().size() > 2)
        CHECK(tokens->decode(ids, false) == c.at(2).get_string().value());
      ++compared;
    }
  }
  CHECK(compared > 300);
}

TEST_CASE("special tokens of older formats come from the model's file and from tokenizer_config.json") {
  const auto model = older_content(older_tokenizers() / "bpe-bytes/tokenizer.model");
  const folder_of_one folder("tokenizer.model", model);
  const auto plain = folder.load();
  CHECK(plain->unk() == 0);
  CHECK(plain->bos() == 1);
  CHECK(plain->eos() == 2);
  const auto fox = plain->encode("The fox", false);
  auto begun = fox;
  begun.insert(begun.begin(), 1);
  CHECK(plain->encode("The fox", true) == begun);
  CHECK(plain->encode("</s>", false) == std::vector<token_id>{2});
  const auto size = plain->vocab_size();
  folder.add("tokenizer_config.json",
             R"({"add_bos_token":false,"add_eos_token":true,"eos_token":"<|end|>",
    "added_tokens_decoder":{"1":{"content":"<s>","special":true},")" +
               std::to_string(size) + R"(":{"content":"<|end|>","special":true}}})");
  const auto configured = folder.load();
  CHECK(configured->vocab_size() == size + 1);
  CHECK(configured->eos() == static_cast<token_id>(size));
  auto ended = fox;
  ended.push_back(static_cast<token_id>(size));
  CHECK(configured->encode("The fox<|end|>", false) == ended);
  auto closed = fox;
  closed.push_back(2);
  CHECK(configured->encode("The fox", true) == closed);
  CHECK(configured->decode(ended, true) == "The fox");
}

TEST_CASE("a megabyte of anything is tokenized in linear time by older formats") {
  constexpr std::size_t megabyte = 1 << 20;
  for (const std::string name : {"unigram-symbols", "unigram-bytes", "bpe-symbols", "cl100k_base"}) {
    CAPTURE(name);
    const auto tokens = tokenizer::load(older_tokenizers() / name);
    for (const std::string piece : {"a", " ", "fox ", "😀", "<|a", "AB", "e\u0301"}) {
      CAPTURE(piece);
      std::string text, eighth;
      while (eighth.size() < megabyte / 8)
        eighth += piece;
      while (text.size() < megabyte)
        text += piece;
      bool linear = false;
      for (int tries = 0; tries < 5 && !linear; ++tries) // a busy machine charges for what it takes away
        linear = processor_seconds(*tokens, text) < 24 * processor_seconds(*tokens, eighth) + 0.3;
      CHECK(linear);
    }
  }
}

TEST_CASE("SentencePiece models that are damaged, hostile or of other kinds are refused with a sentence") {
  const auto refused = [](const std::string& content) {
    return folder_of_one("tokenizer.model", content).failure_of_load();
  };
  const std::string unk = piece_field("<unk>", 0, 2), a = piece_field("a", -1, 1);
  CHECK(refused(unk + a) == "accepted");
  CHECK(refused("") == "tokenizer.model: is not a SentencePiece model: it has no pieces");
  CHECK(refused(a) == "tokenizer.model: has no piece for unknown characters");
  CHECK(refused("\x0A\x7F") ==
        "tokenizer.model: is not a SentencePiece model: it is cut off: a field takes 127 bytes, but only 0 are left");
  CHECK(refused("\x0A\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01").find("takes 18446744073709551615 bytes") !=
        std::string::npos);
  CHECK(refused(std::string(20, '\xFF')).ends_with("it has a number of more than 10 bytes"));
  CHECK(refused("\x0B").ends_with("it has a field of the unknown wire type 3"));
  CHECK(refused(std::string(2, '\0')).ends_with("it has a field of the number 0"));
  CHECK(refused(unk + piece_field("\xFF", 0, 1)).ends_with("it has a piece (number 1) that is not valid UTF-8"));
  CHECK(refused(unk + piece_field("", 0, 1)).ends_with("it has a piece (number 1) without a text"));
  CHECK(refused(unk + piece_field("b", std::nanf(""), 1))
          .ends_with("it has a piece (number 1) whose score is not a finite number"));
  CHECK(refused(unk + piece_field("b", 0, 9)).ends_with("it has a piece (number 1) of the unknown type 9"));
  CHECK(refused(unk + a + a).find("`model.vocab` ") == std::string::npos); // Unigram: the last one counts
  CHECK(refused(unk + a + bytes_field(2, number_field(3, 3))) ==
        "tokenizer.model: holds a model of type 3; those of type 1 (Unigram) and 2 (BPE) are supported");
  CHECK(refused(unk + a + bytes_field(2, number_field(24, 1))) ==
        "tokenizer.model: has `treat_whitespace_as_suffix`, which is not supported");
  CHECK(refused(unk + piece_field("b", 0, 5) + bytes_field(2, number_field(3, 2))) ==
        "tokenizer.model: has unused pieces (number 1), which are supported only in Unigram models");
  CHECK(
    refused(unk + a + bytes_field(3, bytes_field(2, "abc"))).ends_with("`normalizer.precompiled_charsmap` is cut off"));
  CHECK(refused(unk + a + bytes_field(3, bytes_field(2, "\xFC\xFF\xFF\x7F")))
          .ends_with("has an array of 2147483644 bytes, but only 0 are there"));
}

TEST_CASE("a map of characters that leads out of itself or in circles changes nothing") {
  const std::string unk = piece_field("<unk>", 0, 2), a = piece_field("\u2581a", -1, 1);
  std::mt19937 random(5);
  int loaded = 0;
  for (int round = 0; round < 300; ++round) {
    std::string map("\x40\0\0\0", 4); // 16 units
    for (int i = 0; i < 64; ++i)
      map += static_cast<char>(random() % (round % 2 ? 256 : 4));
    const folder_of_one folder("tokenizer.model",
                               unk + a + bytes_field(3, bytes_field(2, map + std::string("b\0", 2))));
    const auto tokens = folder.load();
    tokens->encode(std::string(2000, 'a') + "\x01\x02\x03", false);
    ++loaded;
  }
  CHECK(loaded == 300);
}

TEST_CASE("damaged models of SentencePiece and tiktoken are refused or work, but do nothing else") {
  std::mt19937 random(7);
  int refused = 0, worked = 0;
  for (const std::string name :
       {"unigram-rules/tokenizer.model", "bpe-bytes/tokenizer.model", "cl100k_base/cl100k_base.tiktoken"}) {
    const auto original = older_content(older_tokenizers() / name);
    REQUIRE(original.size() > 1000);
    for (int round = 0; round < 150; ++round) {
      auto damaged = original;
      for (auto n = 1 + random() % 3; n > 0; --n) {
        const auto at = random() % damaged.size();
        switch (random() % 3) {
          case 0: damaged.erase(at, random() % 40); break;
          case 1: damaged[at] = static_cast<char>(random()); break;
          default: damaged.insert(at, damaged.substr(random() % damaged.size(), random() % 60));
        }
      }
      try {
        const folder_of_one folder(std::filesystem::path(name).filename().string(), damaged);
        const auto tokens = folder.load();
        tokens->decode(tokens->encode("The fox's 123 <|endoftext|> \u00e9 \n", true), false);
        ++worked;
      } catch (const failure& f) {
        CHECK_FALSE(f.what_failed().message.empty());
        ++refused;
      }
    }
  }
  CHECK(refused > 20);
  CHECK(worked > 20);
}

TEST_CASE("files of tiktoken that are malformed, or of a family without a known expression, are refused") {
  const auto refused = [](const std::string& name, const std::string& content) {
    return folder_of_one(name, content).failure_of_load();
  };
  const std::string lines = "YQ== 0\nYg== 1\nYWI= 2\n";
  CHECK(refused("cl100k_base.tiktoken", lines) == "accepted");
  CHECK(refused("mine.tiktoken", lines).find("does not say how texts are split; known are gpt2, ") !=
        std::string::npos);
  CHECK(refused("mine.tiktoken", lines).ends_with("not `mine`"));
  CHECK(refused("cl100k_base.tiktoken", lines + "YWI=\n") ==
        "cl100k_base.tiktoken: line 4 must be a token in base64, a space and a rank from 0 to 16777215");
  CHECK(refused("cl100k_base.tiktoken", lines + "Y!== 3\n").starts_with("cl100k_base.tiktoken: line 4 must be"));
  CHECK(refused("cl100k_base.tiktoken", lines + "YWE= 99999999\n").starts_with("cl100k_base.tiktoken: line 4 must be"));
  CHECK(refused("cl100k_base.tiktoken", lines + "YWE= 2\n").find("gives the id 2 to two tokens") != std::string::npos);
  CHECK(refused("cl100k_base.tiktoken", lines + std::string(1000, 'Y') + " 3\n") ==
        "cl100k_base.tiktoken: line 4 has a token of 750 bytes, at most 256 are supported");
  const folder_of_one llama("tokenizer.model", lines);
  llama.add("config.json", R"({"model_type":"llama"})");
  const auto tokens = llama.load();
  CHECK(tokens->bos() == 128000);
  CHECK(tokens->encode("ab<|eot_id|>", true) == std::vector<token_id>{128000, 2, 128009});
}
