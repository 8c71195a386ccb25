// A tokenizer.json that is malformed, inconsistent or unsupported yields a failure that names the part, never a crash
// or another exception.
#include "runtime/tokenizer/tokenizer.hpp"
#include "tests/test_data.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>

using namespace troupe;

namespace {

std::string contents(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

const std::string model = R"({"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]})";

/// The failure of a file with this member beside a small model, as "code: message".
std::string load_error(const std::string& text) {
  try {
    tokenizer::parse(text, "tokenizer.json");
  } catch (const failure& f) {
    const auto& e = f.what_failed();
    return (e.code == errc::bad_file ? "bad: " : e.code == errc::unsupported ? "unsupported: " : "other: ") + e.message;
  }
  return "accepted";
}

std::string with(const std::string& member) { return load_error(R"({"model":)" + model + "," + member + "}"); }

std::string with_model(const std::string& members) { return load_error(R"({"model":{"type":"BPE",)" + members + "}}"); }

} // namespace

TEST_CASE("a file without a usable model is refused") {
  CHECK(load_error("").starts_with("bad: tokenizer.json: not valid JSON: "));
  CHECK(load_error("[1]") == "bad: tokenizer.json: the file must be an object, not an array");
  CHECK(load_error("{}") == "bad: tokenizer.json: `model` is missing");
  CHECK(load_error(R"({"model":7})") == "bad: tokenizer.json: `model` must be an object, not `7`");
  CHECK(load_error(R"({"model":{"type":"WordLevel","vocab":{}}})") ==
        "unsupported: tokenizer.json: `model.type` is `WordLevel`: this model type is not supported; BPE, Unigram and "
        "WordPiece are");
  CHECK(load_error(R"({"version":"2.0","model":)" + model + "}") ==
        "unsupported: tokenizer.json: `version` is `2.0`; only 1.0 is supported");
  CHECK(load_error(R"({"version":"1.0","model":)" + model + "}") == "accepted");
}

TEST_CASE("a model that is malformed or needs more than is supported is refused") {
  const std::string vocab = R"("vocab":{"a":0,"b":1,"ab":2})";
  CHECK(with_model(vocab) == "bad: tokenizer.json: `model.merges` is missing");
  CHECK(with_model(R"("merges":[])") == "bad: tokenizer.json: `model.vocab` is missing");
  CHECK(with_model(R"("vocab":[],"merges":[])") ==
        "bad: tokenizer.json: `model.vocab` must be an object, not an array");
  CHECK(with_model(R"("vocab":{"a":-1},"merges":[])") ==
        "bad: tokenizer.json: `model.vocab` gives token `a` an id that is not an integer from 0 to 16777215");
  CHECK(with_model(R"("vocab":{"a":16777216},"merges":[])")
          .starts_with("bad: tokenizer.json: `model.vocab` gives token `a`"));
  CHECK(
    with_model(R"("vocab":{"a":"0"},"merges":[])").starts_with("bad: tokenizer.json: `model.vocab` gives token `a`"));
  CHECK(with_model(R"("vocab":{"a":3,"b":3},"merges":[])") ==
        "bad: tokenizer.json: `model.vocab` gives the id 3 to both `a` and `b`");
  CHECK(with_model(R"("vocab":{"a":3,"a":4},"merges":[])") == "bad: tokenizer.json: `model.vocab.a` is given twice");
  CHECK(with_model(vocab + R"(,"merges":["a b c"])") ==
        "bad: tokenizer.json: `model.merges` entry 0 must be two tokens with a space between");
  CHECK(with_model(vocab + R"(,"merges":["a b","ab"])") ==
        "bad: tokenizer.json: `model.merges` entry 1 must be two tokens with a space between");
  CHECK(with_model(vocab + R"(,"merges":[["a"]])") ==
        "bad: tokenizer.json: `model.merges` entry 0 must be a string or a pair of strings");
  CHECK(
    with_model(vocab + R"(,"merges":[["a",1]])").starts_with("bad: tokenizer.json: `model.merges` entry 0 must be"));
  CHECK(with_model(vocab + R"(,"merges":[7])").starts_with("bad: tokenizer.json: `model.merges` entry 0 must be"));
  CHECK(with_model(vocab + R"(,"merges":["a c"])") ==
        "bad: tokenizer.json: `model.merges` entry 0 names `c`, which is not in the vocabulary");
  CHECK(with_model(vocab + R"(,"merges":["b a"])") ==
        "bad: tokenizer.json: `model.merges` entry 0 names `ba`, which is not in the vocabulary");
  const std::string whole = vocab + R"(,"merges":[])";
  CHECK(with_model(whole + R"(,"dropout":0.1)") ==
        "unsupported: tokenizer.json: `model.dropout` is not 0: random tokenization is not supported");
  CHECK(with_model(whole + R"(,"dropout":"x")") == "bad: tokenizer.json: `model.dropout` must be a number, not `x`");
  CHECK(with_model(whole + R"(,"dropout":0.0)") == "accepted");
  CHECK(
    with_model(whole + R"(,"continuing_subword_prefix":"##")") ==
    "unsupported: tokenizer.json: `model.continuing_subword_prefix` is `##`; only BPE models without it are supported");
  CHECK(with_model(whole + R"(,"end_of_word_suffix":"</w>")") ==
        "unsupported: tokenizer.json: `model.end_of_word_suffix` is `</w>`; only BPE models without it are supported");
  CHECK(with_model(whole + R"(,"end_of_word_suffix":"")") == "accepted");
  CHECK(with_model(whole + R"(,"fuse_unk":1)") == "bad: tokenizer.json: `model.fuse_unk` must be a boolean, not `1`");
  CHECK(with_model(whole + R"(,"unk_token":{})") ==
        "bad: tokenizer.json: `model.unk_token` must be a string, not an object");
}

TEST_CASE("a Unigram or WordPiece model that is malformed is refused") {
  const auto unigram = [](const std::string& members) {
    return load_error(R"({"model":{"type":"Unigram",)" + members + "}}");
  };
  CHECK(unigram(R"("vocab":[["a",-1],["<unk>",0]],"unk_id":1)") == "accepted");
  CHECK(unigram(R"("unk_id":0)") == "bad: tokenizer.json: `model.vocab` is missing");
  CHECK(unigram(R"("vocab":{"a":0})") == "bad: tokenizer.json: `model.vocab` must be an array, not an object");
  CHECK(unigram(R"("vocab":[["a",-1],"b"])") ==
        "bad: tokenizer.json: `model.vocab` entry 1 must be a token and its score");
  CHECK(unigram(R"("vocab":[["a"]])").ends_with("entry 0 must be a token and its score"));
  CHECK(unigram(R"("vocab":[["a","b"]])").ends_with("entry 0 must have a number as its score"));
  CHECK(unigram(R"("vocab":[["a",0]],"unk_id":1)") ==
        "bad: tokenizer.json: `model.unk_id` is 1, which is not the id of a token");
  CHECK(unigram(R"("vocab":[[")" + std::string(2000, 'a') + R"(",0]])") ==
        "bad: tokenizer.json: `model.vocab` entry 0 has 2000 bytes, at most 1024 are supported");
  CHECK(load_error(R"({"model":{"type":"WordPiece","vocab":{")" + std::string(2000, 'a') + R"(":0}}})") ==
        "bad: tokenizer.json: `model.vocab` has a token of 2000 bytes, at most 1024 are supported");
  CHECK(load_error(R"({"model":{"type":"WordPiece","vocab":{"a":0},"max_input_chars_per_word":-1}})")
          .find("`model.max_input_chars_per_word` must be an integer from 0") != std::string::npos);
  // Models without a type are told apart by what they have.
  CHECK(load_error(R"({"model":{"vocab":[["a",-1]]}})") == "accepted");
  CHECK(load_error(R"({"model":{"vocab":{"a":0},"max_input_chars_per_word":9}})") == "accepted");
  const auto lacking = tokenizer::parse(R"({"model":{"type":"Unigram","vocab":[["a",-1]]}})", "x");
  CHECK(lacking->encode("aa", true) == std::vector<token_id>{0, 0});
  CHECK_THROWS_AS(lacking->encode("ab", true), failure);
  const auto strict = tokenizer::parse(R"({"model":{"type":"WordPiece","vocab":{"a":0}}})", "x");
  CHECK_THROWS_AS(strict->encode("b", true), failure);
}

TEST_CASE("a map of characters that is malformed is refused") {
  const auto map = [](const std::string& base64) {
    return with(R"("normalizer":{"type":"Precompiled","precompiled_charsmap":")" + base64 + "\"}");
  };
  CHECK(with(R"("normalizer":{"type":"Precompiled"})") == "accepted");
  CHECK(map("") == "accepted");
  CHECK(map("!!") == "bad: tokenizer.json: `normalizer.precompiled_charsmap` is not valid base64");
  CHECK(map("AAA=") == "bad: tokenizer.json: `normalizer.precompiled_charsmap` is cut off");
  CHECK(map("AAAAAA==") == "accepted");
  CHECK(map("AwAAAAAAAA==") ==
        "bad: tokenizer.json: `normalizer.precompiled_charsmap` has an array of 3 bytes, expected a multiple of 4");
  CHECK(map("AAAAAP8=").ends_with("has replacements that are not valid UTF-8"));
}

TEST_CASE("parts of kinds that are not supported are refused by name") {
  CHECK(with(R"("normalizer":{"type":"ByteLevel"})")
          .starts_with(
            "unsupported: tokenizer.json: `normalizer` is a normalizer of type `ByteLevel`, which is not supported"));
  CHECK(with(R"("normalizer":{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Foo"}]})")
          .starts_with("unsupported: tokenizer.json: `normalizer.normalizers[1]` is a normalizer of type `Foo`"));
  CHECK(with(R"("pre_tokenizer":{"type":"UnicodeScripts"})")
          .starts_with("unsupported: tokenizer.json: `pre_tokenizer` is a pre-tokenizer of type `UnicodeScripts`"));
  CHECK(with(R"("post_processor":{"type":"Magic"})")
          .starts_with("unsupported: tokenizer.json: `post_processor` is a post-processor of type `Magic`"));
  CHECK(with(R"("decoder":{"type":"CTC"})")
          .starts_with("unsupported: tokenizer.json: `decoder` is a decoder of type `CTC`"));
  CHECK(with(R"("pre_tokenizer":{"type":"Split","pattern":{"String":"x"},"behavior":"Exploded","invert":false})")
          .starts_with("unsupported: tokenizer.json: `pre_tokenizer.behavior` is `Exploded`, which is not supported"));
}

TEST_CASE("parts with missing or wrong members are refused by name") {
  CHECK(with(R"("normalizer":"NFC")") == "bad: tokenizer.json: `normalizer` must be an object, not `NFC`");
  CHECK(with(R"("normalizer":{})") == "bad: tokenizer.json: `normalizer.type` is missing");
  CHECK(with(R"("normalizer":{"type":"Strip","strip_left":1,"strip_right":true})") ==
        "bad: tokenizer.json: `normalizer.strip_left` must be a boolean, not `1`");
  CHECK(with(R"("normalizer":{"type":"Prepend"})") == "bad: tokenizer.json: `normalizer.prepend` is missing");
  CHECK(with(R"("normalizer":{"type":"Replace","pattern":{},"content":""})") ==
        "bad: tokenizer.json: `normalizer.pattern` must have either `String` or `Regex`");
  CHECK(with(R"("pre_tokenizer":{"type":"Metaspace","replacement":"ab"})") ==
        "bad: tokenizer.json: `pre_tokenizer.replacement` must be one character, not `ab`");
  CHECK(with(R"("pre_tokenizer":{"type":"Metaspace","replacement":""})") ==
        "bad: tokenizer.json: `pre_tokenizer.replacement` must be one character, not ``");
  CHECK(with(R"("pre_tokenizer":{"type":"Metaspace","replacement":"_","prepend_scheme":"last"})") ==
        "bad: tokenizer.json: `pre_tokenizer.prepend_scheme` must be `always`, `first` or `never`, not `last`");
  CHECK(
    with(
      R"("pre_tokenizer":{"type":"Metaspace","replacement":"_","prepend_scheme":"first","add_prefix_space":false})") ==
    "bad: tokenizer.json: `pre_tokenizer` has `add_prefix_space` that contradicts `prepend_scheme`");
  CHECK(with(R"("pre_tokenizer":{"type":"Sequence","pretokenizers":{}})") ==
        "bad: tokenizer.json: `pre_tokenizer.pretokenizers` must be an array, not an object");
  CHECK(with(R"("decoder":{"type":"Strip","content":" ","start":-1,"stop":0})") ==
        "bad: tokenizer.json: `decoder.start` must be an integer from 0 to 1048576, not `-1`");
  CHECK(with(R"("decoder":{"type":"Sequence","decoders":[null]})") ==
        "bad: tokenizer.json: `decoder.decoders[0]` must be an object, not `null`");
}

TEST_CASE("regular expressions that cannot be used are refused with the reason") {
  const auto split = [](const std::string& expression) {
    return with(R"("pre_tokenizer":{"type":"Split","pattern":{"Regex":")" + expression +
                R"("},"behavior":"Isolated","invert":false})");
  };
  CHECK(split("(a") ==
        "bad: tokenizer.json: `pre_tokenizer.pattern.Regex` is not a usable regular expression: missing closing "
        "parenthesis");
  CHECK(split("[a") ==
        "bad: tokenizer.json: `pre_tokenizer.pattern.Regex` is not a usable regular expression: "
        "missing terminating ] for character class");
  CHECK(split("\\\\p{Nonsense}")
          .starts_with("bad: tokenizer.json: `pre_tokenizer.pattern.Regex` is not a usable regular expression"));
  CHECK(
    split("*").starts_with("bad: tokenizer.json: `pre_tokenizer.pattern.Regex` is not a usable regular expression"));
  CHECK(
    split("\\\\").starts_with("bad: tokenizer.json: `pre_tokenizer.pattern.Regex` is not a usable regular expression"));
  CHECK(split("[a[bc]]") ==
        "unsupported: tokenizer.json: `pre_tokenizer.pattern.Regex` has a character class within a class, "
        "which is not supported");
  CHECK(
    split("[a-z&&[^x]]").starts_with("unsupported: tokenizer.json: `pre_tokenizer.pattern.Regex` has an intersection"));
  CHECK(
    split("[\\\\W_]").starts_with("unsupported: tokenizer.json: `pre_tokenizer.pattern.Regex` has \\W or \\H within"));
  CHECK(split("\\\\xE4\\\\xBD")
          .starts_with("unsupported: tokenizer.json: `pre_tokenizer.pattern.Regex` names a single byte"));
  CHECK(
    split("a(?i)b|c").starts_with("unsupported: tokenizer.json: `pre_tokenizer.pattern.Regex` sets an option within"));
  CHECK(split("(?i)a|b") == "accepted");
  CHECK(split("\\\\u12").starts_with("unsupported: tokenizer.json: `pre_tokenizer.pattern.Regex` has \\u without"));
}

TEST_CASE("a text on which an expression takes exponential time is refused") {
  const auto tokens = tokenizer::parse(R"({"model":)" + model + R"(,"pre_tokenizer":{"type":"Split",
    "pattern":{"Regex":"(a+a+)+[bc]"},"behavior":"Isolated","invert":false}})",
                                       "test");
  CHECK(tokens->encode("aaab", false).size() == 3);
  try {
    tokens->encode(std::string(200, 'a'), false);
    FAIL("accepted");
  } catch (const failure& f) {
    CHECK(f.what_failed().code == errc::bad_request);
    CHECK(f.what_failed().message == "the text cannot be split into words: match limit exceeded");
  }
}

TEST_CASE("added tokens and templates that contradict the vocabulary are refused") {
  CHECK(with(R"("added_tokens":[{"id":3,"content":"<s>"}])") == "accepted");
  CHECK(with(R"("added_tokens":[{"id":0,"content":"a","special":true}])") == "accepted");
  CHECK(with(R"("added_tokens":[{"id":9,"content":"<s>"}])") == "accepted"); // under another id, with a remark
  CHECK(with(R"("added_tokens":[{"content":"<s>"}])") == "bad: tokenizer.json: `added_tokens[0].id` is missing");
  CHECK(with(R"("added_tokens":[{"id":3,"content":5}])") ==
        "bad: tokenizer.json: `added_tokens[0].content` must be a string, not `5`");
  CHECK(with(R"("added_tokens":[{"id":3,"content":" ","normalized":true}],
                "normalizer":{"type":"Strip","strip_left":true,"strip_right":true})") ==
        "bad: tokenizer.json: `added_tokens[0]` (` `) is empty once it is normalized");
  const auto single = [](const std::string& piece, const std::string& special) {
    return with(R"("post_processor":{"type":"TemplateProcessing","single":[)" + piece + R"(],"special_tokens":{)" +
                special + "}}");
  };
  const std::string start = R"({"SpecialToken":{"id":"<s>","type_id":0}})";
  CHECK(single(start, R"("<s>":{"id":"<s>","ids":[1]})") == "accepted");
  CHECK(single(start, "") ==
        "bad: tokenizer.json: `post_processor.single[0].SpecialToken.id` is `<s>`, which is not among the "
        "`special_tokens`");
  CHECK(single(start, R"("<s>":{"id":"<s>","ids":[7]})") ==
        "bad: tokenizer.json: `post_processor.special_tokens.<s>.ids[0]` is 7, which is not the id of a token");
  CHECK(
    single(R"({"Sequence":{"id":"B","type_id":0}})", "") ==
    "bad: tokenizer.json: `post_processor.single[0].Sequence.id` must be `A`: a single text has no second sequence");
  const std::string bert = R"({"type":"BertProcessing","cls":["a",0],"sep":["b",1]})";
  CHECK(with(R"("post_processor":{"type":"Sequence","processors":[)" + bert + "," + bert + "]}") ==
        "unsupported: tokenizer.json: `post_processor.processors[1]` is a second post-processor that adds tokens, "
        "which is not supported");
}

TEST_CASE("ids may have holes") {
  const auto tokens = tokenizer::parse(
    R"({"model":{"type":"BPE","vocab":{"a":5,"b":1000,"ab":7},"merges":[["a","b"]]}})", "x");
  CHECK(tokens->vocab_size() == 1001);
  CHECK(tokens->encode("abba", true) == std::vector<token_id>{7, 1000, 5});
  CHECK(tokens->token(6) == "");
  CHECK(tokens->decode(std::vector<token_id>{0, 7, 6, 1000, 1001}, true) == "ab b");
}

TEST_CASE("a character outside the vocabulary is dropped, becomes the unknown token, or is refused") {
  const std::string start = R"({"model":{"type":"BPE","vocab":{"a":0,"?":1},"merges":[])";
  CHECK(tokenizer::parse(start + "}}", "x")->encode("aéa", true) == std::vector<token_id>{0, 0});
  CHECK(tokenizer::parse(start + R"(,"unk_token":"?"}})", "x")->encode("éèa", true) == std::vector<token_id>{1, 1, 0});
  CHECK(tokenizer::parse(start + R"(,"unk_token":"?","fuse_unk":true}})", "x")->encode("éèa", true) ==
        std::vector<token_id>{1, 0});
  const auto lacking = tokenizer::parse(start + R"(,"unk_token":"<unk>"}})", "x");
  CHECK(lacking->encode("aa", true) == std::vector<token_id>{0, 0});
  CHECK_THROWS_AS(lacking->encode("aé", true), failure);
}

TEST_CASE("a folder without tokenizer.json, or with a broken tokenizer_config.json, is refused") {
  const auto folder = std::filesystem::temp_directory_path() / "troupe_tokenizer_test";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const auto message = [&] {
    try {
      tokenizer::load(folder);
    } catch (const failure& f) {
      return std::string(f.what());
    }
    return std::string("accepted");
  };
  CHECK(message() == (folder / "tokenizer.json").string() + ": no such file");
  std::ofstream(folder / "tokenizer.json") << R"({"model":)" + model + "}";
  CHECK(message() == "accepted");
  std::ofstream(folder / "tokenizer_config.json")
    << R"({"bos_token":{"content":"a"},"eos_token":"b","unk_token":"lost"})";
  CHECK(message() == "accepted");
  CHECK(tokenizer::load(folder)->bos() == 0);
  CHECK(tokenizer::load(folder)->eos() == 1);
  CHECK_FALSE(tokenizer::load(folder)->unk());
  std::ofstream(folder / "tokenizer_config.json") << R"({"bos_token":7})";
  CHECK(message() == (folder / "tokenizer_config.json").string() + ": `bos_token` must be a string, not `7`");
  std::ofstream(folder / "tokenizer_config.json") << "{";
  CHECK(message().starts_with((folder / "tokenizer_config.json").string() + ": not valid JSON"));
  std::filesystem::remove_all(folder);
}

TEST_CASE("damaged files are refused or work, but do nothing else") {
  std::mt19937 random(7);
  const std::string text = "The fox's 123 <|eot_id|> [INST] 你好 é \n";
  int refused = 0, worked = 0;
  for (const std::string name : {"llama-gqa", "qwen2", "mistral-swa"}) {
    const auto original = contents(golden(name) + "/tokenizer.json");
    // Most of the file is vocabulary; the damage should also reach the parts before it.
    const auto head = original.find("\"vocab\"");
    REQUIRE(head != std::string::npos);
    const std::vector<std::string> fragments = {
      "null",       "true",  "-1",          "99999999999", "\"\"",         "[]",
      "{}",         "1e400", "\"\\ud800\"", "\"type\":",   "\"Sequence\"", "\"ByteLevel\"",
      "\"\\\\p{\"", ",",     "]",           "}",           "\"",           "\xFF"};
    for (int round = 0; round < 400; ++round) {
      std::string damaged = original;
      for (auto n = 1 + random() % 3; n > 0; --n) {
        const auto at = random() % (random() % 2 ? std::min(head, damaged.size()) : damaged.size());
        const auto end = std::min(damaged.size(), damaged.find_first_of(",:}]", at));
        switch (random() % 5) {
          case 0: damaged.erase(at, random() % 40); break;
          case 1: damaged.replace(at, end - at, fragments[random() % fragments.size()]); break;
          case 2: damaged[at] = static_cast<char>(random()); break;
          case 3: damaged.insert(at, damaged.substr(random() % damaged.size(), random() % 60)); break;
          default: {
            const auto value = damaged.find(':', at);
            if (value != std::string::npos)
              damaged.replace(value + 1, std::min(damaged.size(), damaged.find_first_of(",}]", value)) - value - 1,
                              fragments[random() % fragments.size()]);
          }
        }
        if (damaged.empty())
          break;
      }
      try {
        const auto tokens = tokenizer::parse(damaged, "tokenizer.json");
        const auto ids = tokens->encode(text, true);
        tokens->decode(ids, false);
        ++worked;
      } catch (const failure& f) {
        CHECK_FALSE(f.what_failed().message.empty());
        ++refused;
      }
    }
  }
  CHECK(refused > 300);
  CHECK(worked > 20);
}

TEST_CASE("A text that a tokenizer.json enlarges beyond the limit is refused before memory is allocated") {
  const auto encode = [](const std::string& members, const std::string& text) -> std::string {
    const auto made = tokenizer::parse(
      R"({"model":{"type":"BPE","vocab":{"a":0,"b":1," ":2,"<s>":3},"merges":[]},)" + members + "}", "tokenizer.json");
    try {
      made->encode(text, true);
    } catch (const failure& f) {
      CHECK(f.what_failed().code == errc::bad_request);
      return f.what();
    }
    return {};
  };
  const auto normalizer = [](const std::string& steps) {
    return R"("normalizer":{"type":"Sequence","normalizers":[)" + steps + "]}";
  };
  const auto replace = [](const std::string& what, const std::string& content) {
    return R"({"type":"Replace","pattern":{"String":")" + what + R"("},"content":")" + content + "\"}";
  };
  const std::string book(100'000, 'b'), text(20'000, 'a');
  const std::string refused =
    "the model's tokenizer makes too much of this text: it grows from 20000 bytes by more than "
    "705536";
  CHECK(encode(normalizer(replace("a", book)), text) == refused);
  CHECK(encode(normalizer(R"({"type":"Replace","pattern":{"Regex":""},"content":")" + book + "\"}"), text) == refused);
  std::string doubling = replace("a", "aa");
  for (int i = 0; i < 60; ++i)
    doubling += "," + replace("a", "aa");
  CHECK(encode(normalizer(doubling), text) == refused);
  CHECK(encode(normalizer(doubling + "," + replace("a", "")), text) == refused); // even if the result is short
  CHECK(encode(normalizer(R"({"type":"Prepend","prepend":")" + book + "\"}"), "a").find("makes too much") !=
        std::string::npos);
  // Every part between special tokens gets the prefix.
  const std::string special = R"("added_tokens":[{"id":3,"content":"<s>","special":true}],)";
  std::string parts;
  for (int i = 0; i < 1'000; ++i)
    parts += "a<s>";
  CHECK(encode(special + R"("normalizer":{"type":"Prepend","prepend":")" + book.substr(0, 60'000) + "\"}", parts)
          .find("makes too much") != std::string::npos);
  std::string bytes = R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":false})";
  for (int i = 0; i < 30; ++i)
    bytes += R"(,{"type":"ByteLevel","add_prefix_space":false,"use_regex":false})";
  std::string wide;
  for (int i = 0; i < 10'000; ++i)
    wide += "\xC3\xA9";
  CHECK(encode(R"("pre_tokenizer":{"type":"Sequence","pretokenizers":[)" + bytes + "]}", wide).find("makes too much") !=
        std::string::npos);
  // The growth of real tokenizers stays possible: the longest NFKC mapping, and bytes as characters.
  std::string ligatures;
  for (int i = 0; i < 10'000; ++i)
    ligatures += "\xEF\xB7\xBA";
  CHECK(encode(normalizer(R"({"type":"NFKC"})") +
                 R"(,"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":true,"use_regex":false})",
               ligatures)
          .empty());
}

TEST_CASE("A tokenizer.json of very many steps, or of very long tokens and patterns, is refused") {
  std::string steps = R"({"type":"Fuse"})";
  for (int i = 0; i < 200; ++i)
    steps += R"(,{"type":"Fuse"})";
  CHECK(with(R"("decoder":{"type":"Sequence","decoders":[)" + steps + "]}")
          .ends_with("is one step more than the 128 that are supported"));
  std::string lower = R"({"type":"Lowercase"})";
  for (int i = 0; i < 200; ++i)
    lower += R"(,{"type":"Lowercase"})";
  CHECK(with(R"("normalizer":{"type":"Sequence","normalizers":[)" + lower + "]}")
          .ends_with("is one step more than the 128 that are supported"));
  std::string digits = R"({"type":"Digits","individual_digits":true})";
  for (int i = 0; i < 200; ++i)
    digits += R"(,{"type":"Digits","individual_digits":true})";
  CHECK(with(R"("pre_tokenizer":{"type":"Sequence","pretokenizers":[)" + digits + "]}")
          .ends_with("is one step more than the 128 that are supported"));
  const std::string book(100'000, 'b');
  CHECK(
    with(R"("decoder":{"type":"Replace","pattern":{"String":"a"},"content":")" + book + "\"}") ==
    "unsupported: tokenizer.json: the file can make a text of more than 65536 bytes of one token: its longest has 2, "
    "which its `decoder` may grow");
  CHECK(with_model(R"("vocab":{")" + book + R"(":0},"merges":[])").find("its longest has 100000") != std::string::npos);
  CHECK(with(R"("normalizer":{"type":"Replace","pattern":{"String":")" + book + R"("},"content":""})")
          .ends_with("`normalizer.pattern.String` has 100000 bytes, at most 1024 are supported"));
  CHECK(with(R"("normalizer":{"type":"Replace","pattern":{"Regex":")" + book + R"("},"content":""})")
          .ends_with("`normalizer.pattern.Regex` has 100000 bytes, at most 65536 are supported"));
  CHECK(with(R"("added_tokens":[{"id":3,"content":")" + book + R"(","special":true}])")
          .ends_with("has 100000 bytes, at most 1024 are supported"));
  CHECK(with(R"("normalizer":{"type":"Prepend","prepend":")" + book + R"("},"added_tokens":[{"id":3,"content":"c"}])")
          .find("`added_tokens[0]` cannot be normalized: ") != std::string::npos);
}
