#include "runtime/support/json/json.hpp"
#include "runtime/support/meter.hpp"
#include "runtime/tokenizer/tokenizer.hpp"
#include "runtime/tokenizer/unicode.hpp"
#include "tests/test_data.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <ctime>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

using namespace troupe;

namespace {

const char* const checkpoints[] = {
  "golden/llama-gqa",   "golden/llama-mha-tied", "golden/llama-mqa-rope3", "golden/qwen2",      "golden/qwen3",
  "golden/mistral-swa", "families/gemma2",       "families/gemma3",        "families/gpt-neox", "families/gpt-oss",
  "families/gpt2",      "families/granite",      "families/mixtral",       "families/olmo2",    "families/opt",
  "families/phi3",      "families/qwen3-moe",    "families/smollm3"};

std::string folder_of(const std::string& checkpoint) { return test_data() + "/" + checkpoint; }

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
    const auto tokens = tokenizer::load(folder_of(name));
    const auto expected = json::document::load(folder_of(name) + "/expected.json");
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

TEST_CASE("a text of the reference checkpoints has at least as many tokens as its bytes need") {
  for (const std::string name : checkpoints) {
    CAPTURE(name);
    const auto tokens = tokenizer::load(folder_of(name));
    const auto most = tokens->most_bytes_per_token();
    CHECK(most > 0);
    CHECK(most < 4096);
    for (std::size_t id = 0; id < tokens->vocab_size(); ++id)
      CHECK(tokens->token_bytes(static_cast<token_id>(id)).size() <= most);
  }
}

TEST_CASE("prompts and rendered conversations of the reference checkpoints become the reference ids") {
  for (const std::string name : checkpoints) {
    CAPTURE(name);
    const auto tokens = tokenizer::load(folder_of(name));
    const auto expected = json::document::load(folder_of(name) + "/expected.json");
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

TEST_CASE("tokens can be looked up by id and by name") {
  const auto bytes = tokenizer::load(golden("llama-gqa"));
  CHECK(bytes->vocab_size() == 768);
  CHECK(bytes->bos() == 0);
  CHECK(bytes->eos() == 4);
  CHECK_FALSE(bytes->unk());
  CHECK(bytes->id_of("<|eot_id|>") == 4);
  CHECK_FALSE(bytes->id_of("<|nothing|>"));
  CHECK(bytes->is_special(4));
  CHECK_FALSE(bytes->is_special(300));
  const auto the = bytes->id_of("Ġthe");
  REQUIRE(the);
  CHECK(bytes->token(*the) == "Ġthe");
  CHECK(bytes->token_bytes(*the) == " the");
  CHECK(bytes->token_bytes(4) == "<|eot_id|>");
  for (const token_id outside : {-1, 768, 2'000'000'000}) {
    CHECK(bytes->token(outside) == "");
    CHECK(bytes->token_bytes(outside) == "");
    CHECK_FALSE(bytes->is_special(outside));
  }

  const auto pieces = tokenizer::load(golden("mistral-swa"));
  CHECK(pieces->unk() == 0);
  CHECK(pieces->token_bytes(*pieces->id_of("<0xE2>")) == "\xE2");
  CHECK(pieces->token_bytes(*pieces->id_of("▁t")) == " t");
}

TEST_CASE("text that is not UTF-8 is refused") {
  const auto tokens = tokenizer::load(golden("qwen2"));
  for (const std::string text :
       {"\xFF", "a\xC3", "\xC0\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xE2\x82", "ok \x80"}) {
    try {
      tokens->encode(text, false);
      FAIL("accepted");
    } catch (const failure& f) {
      CHECK(f.what_failed().code == errc::bad_request);
      CHECK(f.what_failed().message == "the text is not valid UTF-8");
    }
  }
}

TEST_CASE("a long text of anything is tokenized in linear time, whole") {
  constexpr std::size_t size = 1 << 18;
  const auto repeated = [](const auto& piece, std::size_t size) {
    std::string text;
    while (text.size() < size)
      text += piece.first;
    return text + piece.second;
  };
  for (const std::string name : {"llama-gqa", "llama-mha-tied", "qwen2", "mistral-swa"}) {
    CAPTURE(name);
    const auto tokens = tokenizer::load(golden(name));
    // Processor time, because the machine may be busy.
    const auto seconds = [&](const std::string& text) {
      const auto started = std::clock();
      tokens->encode(text, true);
      return static_cast<double>(std::clock() - started) / CLOCKS_PER_SEC;
    };
    const std::string special(tokens->token(1)), almost = special.substr(0, special.size() - 1);
    const std::pair<std::string, std::string> pieces[] = {
      {"a", ""},   {" ", "x"},       {"\n", ""},    {" \n", "x"}, {"😀", ""},
      {"!", "\n"}, {"1", ""},        {"你好", ""},  {"\t ", ""},  {"<|", ""},
      {"'s", ""},  {"abcdefgh", ""}, {special, ""}, {almost, ""}, {"é\u0323\u0301", ""}};
    for (const auto& piece : pieces) {
      CAPTURE(piece.first);
      const auto text = repeated(piece, size);
      // Quadratic work would take 64 times as long for eight times the text.
      bool linear = false;
      for (int tries = 0; tries < 5 && !linear; ++tries) // a busy machine charges for what it takes away
        linear = seconds(text) < 24 * seconds(repeated(piece, size / 8)) + 0.2;
      CHECK(linear);
      if (name != "qwen2") // which normalizes
        CHECK(tokens->decode(tokens->encode(text, true), true).size() ==
              (text.find(special) == std::string::npos ? text.size() : 0));
    }
  }
}
TEST_CASE("an expression that scans a whole run of spaces before it fails does so only once") {
  const auto tokens = tokenizer::parse(R"({"model":{"type":"BPE","vocab":{" ":0,"x":1},"merges":[]},"pre_tokenizer":
    {"type":"Split","pattern":{"Regex":"\\s+$"},"behavior":"Removed","invert":false}})",
                                       "test");
  const std::string spaces(1 << 20, ' ');
  CHECK(tokens->encode(spaces + "x", false).size() == spaces.size() + 1);
  CHECK(tokens->encode("x" + spaces, false) == std::vector<token_id>{1});
}

TEST_CASE("a long run of combining marks is normalized in time") {
  const auto tokens = tokenizer::load(golden("qwen2"));
  std::string text = "a";
  for (int i = 0; i < 250'000; ++i)
    text += "\u0301\u0316";          // in the wrong order: every mark below moves before every mark above
  const auto started = std::clock(); // of the processor's time; quadratic work would take many minutes
  const auto ids = tokens->encode(text, false);
  CHECK(static_cast<double>(std::clock() - started) / CLOCKS_PER_SEC < 30.0);
  std::string sorted = "\u00E1"; // the first acute composes with the a
  for (int i = 0; i < 250'000; ++i)
    sorted += "\u0316";
  for (int i = 1; i < 250'000; ++i)
    sorted += "\u0301";
  CHECK(tokens->decode(ids, false) == sorted);
}

TEST_CASE("encoding is charged as it goes, and ends soon after its meter is spent") {
  for (const std::string name : {"golden/llama-gqa", "families/gemma2"}) { // BPE by words, and over the whole text
    CAPTURE(name);
    const auto tokens = tokenizer::load(folder_of(name));
    for (const std::string_view what : {"tree", "tree of "}) { // one word, and many
      CAPTURE(what);
      std::string text;
      while (text.size() < 400'000)
        text += what;
      meter whole({});
      whole.run([&] { tokens->encode(text, false); });
      CHECK(whole.steps() > text.size() / 2);
      for (const auto part : {8, 2}) {
        const auto most = whole.steps() / static_cast<std::uint64_t>(part);
        meter some({.steps = most});
        CHECK_THROWS_AS(some.run([&] { tokens->encode(text, false); }), meter_spent);
        CHECK(some.steps() < most + 30'000); // not a word more, nor the rest of one
      }
    }
  }
}

TEST_CASE("each step over a text is charged while it is made, and ends when nobody waits") {
  const std::string text = [] {
    std::string made;
    while (made.size() < 200'000) // with what each of the steps below changes, or cuts at
      made += "a\u00C1\uFB01 1\u4F60,\u0301";
    return made;
  }();
  const auto with = [](const std::string& step, const std::string& where) {
    // The whole of a long word is one unknown token: the model itself costs nothing.
    return tokenizer::parse("{\"" + where + "\":" + step +
                              R"(,"model":{"type":"WordPiece","vocab":{"[UNK]":0},"unk_token":"[UNK]"}})",
                            "test");
  };
  const auto cost = [&](const std::string& step, const std::string& where) {
    const auto tokens = with(step, where);
    meter whole({});
    whole.run([&] { tokens->encode(text, false); });
    return whole.steps();
  };
  const auto plain = cost("null", "normalizer");
  for (const std::string step :
       {R"({"type":"NFC"})", R"({"type":"NFKD"})", R"({"type":"Lowercase"})", R"({"type":"StripAccents"})",
        R"({"type":"Strip","strip_left":true,"strip_right":true})", R"({"type":"Nmt"})", R"({"type":"BertNormalizer"})",
        R"({"type":"SentencePiece"})", R"({"type":"Replace","pattern":{"String":"a"},"content":"b"})",
        R"({"type":"Replace","pattern":{"Regex":"a"},"content":"b"})"}) {
    CAPTURE(step);
    CHECK(cost(step, "normalizer") > plain + text.size() / 20);
  }
  for (const std::string step :
       {R"({"type":"Digits","individual_digits":false})", R"({"type":"Punctuation"})", R"({"type":"Whitespace"})",
        R"({"type":"WhitespaceSplit"})", R"({"type":"BertPreTokenizer"})",
        R"({"type":"Metaspace","replacement":"_","split":false})",
        R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":false})"}) {
    CAPTURE(step);
    CHECK(cost(step, "pre_tokenizer") > plain + text.size() / 20);
  }
  // Added tokens that nearly occur everywhere.
  CHECK(cost(R"([{"id":1,"content":"a\u00C1!","special":true}])", "added_tokens") > plain + text.size() / 20);

  std::stop_source stop;
  stop.request_stop();
  meter stopped({}, stop.get_token());
  const auto slow = with(R"({"type":"NFC"})", "normalizer");
  CHECK_THROWS_AS(stopped.run([&] { slow->encode(text, false); }), meter_spent);
  CHECK(stopped.steps() < 30'000);
}

TEST_CASE("a long text composes as short ones do, wherever it is cut") {
  using namespace tokenization;
  for (char32_t c = 0xC0; c < 0x110000; c += c >= 0xAC00 && c < 0xD7A4 ? 47 : 1) { // of Hangul syllables some
    if (c >= 0xD800 && c < 0xE000)
      continue;
    std::string one;
    append_char(one, c);
    const auto apart = normalize(one, normal_form::nfd);
    std::size_t parts = 0;
    for (std::size_t at = 0; at < apart.size(); ++parts)
      next_char(apart, at);
    for (std::size_t before = 1; before < parts; ++before) { // so many characters of it are in a piece
      std::string ahead;
      for (std::size_t i = before; i < 1024; ++i)
        ahead += "\u4F60"; // with which nothing composes
      REQUIRE(normalize(ahead + apart, normal_form::nfc) == ahead + normalize(apart, normal_form::nfc));
    }
  }
}

TEST_CASE("composing is charged, piece by piece") {
  using namespace tokenization;
  constexpr std::uint64_t characters = 100'000;
  std::string text;
  for (std::uint64_t i = 0; i < characters; ++i)
    text += "\u4F60";
  const auto cost = [&](normal_form form, std::uint64_t most) {
    meter its({.steps = most});
    const auto work = [&] { return its.run([&] { return normalize(text, form); }); };
    if (most < UINT64_MAX / 2)
      CHECK_THROWS_AS(work(), meter_spent);
    else
      CHECK(work() == text);
    return its.steps();
  };
  const auto apart = cost(normal_form::nfd, UINT64_MAX / 2);
  CHECK(cost(normal_form::nfc, UINT64_MAX / 2) >= apart + characters);
  const auto half = apart - characters / 2; // of the composing: what follows costs as much
  CHECK(cost(normal_form::nfc, half) < half + 6000);
}

TEST_CASE("many threads may encode with one tokenizer") {
  const auto tokens = tokenizer::load(golden("qwen2"));
  const std::string text = "Once upon a time, Élève 123 <|im_end|> 你好\n";
  const auto expected = tokens->encode(text, true);
  std::vector<std::thread> threads;
  std::atomic<int> same = 0;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i)
        same += tokens->encode(text, true) == expected && tokens->decode(expected, false) == text;
    });
  for (auto& thread : threads)
    thread.join();
  CHECK(same == 200);
}

TEST_CASE("added tokens that take space around them leave none of it to others, and are there once") {
  // Flags of a token of white space and of another: lstrip, rstrip, lstrip, rstrip; ids as `tokenizers` gives them.
  struct flags_case {
    const char* flags;
    std::vector<std::vector<token_id>> expected;
  };
  const std::vector<std::string> texts{"\n\n", "a\n \nb", "<x>\n<x> \n a", "\n <x> \n\n b \n"};
  const flags_case cases[] = {
    {"0000", {{1, 1}, {4, 1, 0, 1, 5}, {6, 1, 6, 0, 1, 0, 4}, {1, 0, 6, 0, 1, 1, 0, 5, 0, 1}}},
    {"0001", {{1, 1}, {4, 1, 0, 1, 5}, {6, 1, 6, 1, 0, 4}, {1, 0, 6, 1, 1, 0, 5, 0, 1}}},
    {"0010", {{1, 1}, {4, 1, 0, 1, 5}, {6, 1, 6, 0, 1, 0, 4}, {1, 6, 0, 1, 1, 0, 5, 0, 1}}},
    {"0011", {{1, 1}, {4, 1, 0, 1, 5}, {6, 1, 6, 1, 0, 4}, {1, 6, 1, 1, 0, 5, 0, 1}}},
    {"0100", {{1, 1}, {4, 1, 1, 5}, {6, 1, 6, 0, 1, 4}, {1, 6, 0, 1, 1, 5, 0, 1}}},
    {"0101", {{1, 1}, {4, 1, 1, 5}, {6, 1, 6, 1, 4}, {1, 6, 1, 1, 5, 0, 1}}},
    {"0110", {{1, 1}, {4, 1, 1, 5}, {6, 1, 6, 0, 1, 4}, {1, 6, 0, 1, 1, 5, 0, 1}}},
    {"0111", {{1, 1}, {4, 1, 1, 5}, {6, 1, 6, 1, 4}, {1, 6, 1, 1, 5, 0, 1}}},
    {"1000", {{1, 1}, {4, 1, 1, 5}, {6, 1, 6, 1, 0, 4}, {1, 0, 6, 1, 1, 0, 5, 1}}},
    {"1001", {{1, 1}, {4, 1, 1, 5}, {6, 6, 4}, {1, 0, 6, 5, 1}}}, // the last two are a crash there
    {"1010", {{1, 1}, {4, 1, 1, 5}, {6, 1, 6, 1, 0, 4}, {1, 6, 1, 1, 0, 5, 1}}},
    {"1011", {{1, 1}, {4, 1, 1, 5}, {6, 6, 4}, {1, 6, 5, 1}}}, // the last two are a crash there
    {"1100", {{1}, {4, 1, 5}, {6, 1, 6, 1, 4}, {1, 6, 1, 5, 1}}},
    {"1101", {{1}, {4, 1, 5}, {6, 6, 4}, {1, 6, 5, 1}}},
    {"1110", {{1}, {4, 1, 5}, {6, 1, 6, 1, 4}, {1, 6, 1, 5, 1}}},
    {"1111", {{1}, {4, 1, 5}, {6, 6, 4}, {1, 6, 5, 1}}},
  };
  for (const auto& one : cases) {
    CAPTURE(std::string(one.flags));
    const auto flag = [&](int at) { return one.flags[at] == '1' ? std::string("true") : std::string("false"); };
    const auto tokens = tokenizer::parse(
      R"({"added_tokens":[{"id":1,"content":"\n","special":true,"lstrip":)" + flag(0) + R"(,"rstrip":)" + flag(1) +
        R"(},{"id":6,"content":"<x>","special":true,"lstrip":)" + flag(2) + R"(,"rstrip":)" + flag(3) +
        R"(}],"model":{"type":"BPE","vocab":{" ":0,"\n":1,"_":2,"\u2581":3,"a":4,"b":5},"merges":[]}})",
      "test");
    for (std::size_t i = 0; i < texts.size(); ++i) {
      CAPTURE(texts[i]);
      CHECK(tokens->encode(texts[i], false) == one.expected[i]);
    }
  }
}

TEST_CASE("what a normalizer puts before a text begins it, too, for Metaspace's first word") {
  struct prepend_case {
    const char *before, *added;                  // an added token of normalised text, if any
    std::vector<std::vector<token_id>> expected; // as `tokenizers` gives them
  };
  const std::vector<std::string> texts{"ab", "_ab", "a b", " ab"};
  const prepend_case cases[] = {
    {"_", "", {{3, 2, 3, 4, 5}, {3, 2, 3, 2, 4, 5}, {3, 2, 3, 4, 3, 5}, {3, 2, 3, 4, 5}}},
    {"_", "_", {{3, 2, 3, 4, 5}, {2, 4, 5}, {3, 2, 3, 4, 3, 5}, {3, 2, 3, 4, 5}}},
    {"_", "a", {{4, 5}, {3, 2, 4, 5}, {4, 3, 5}, {3, 2, 3, 4, 5}}},
    {"__", "", {{3, 2, 3, 2, 3, 4, 5}, {3, 2, 3, 2, 3, 2, 4, 5}, {3, 2, 3, 2, 3, 4, 3, 5}, {3, 2, 3, 2, 3, 4, 5}}},
    {"__", "_", {{3, 2, 3, 2, 3, 4, 5}, {2, 4, 5}, {3, 2, 3, 2, 3, 4, 3, 5}, {3, 2, 3, 2, 3, 4, 5}}},
    {"__", "a", {{4, 5}, {3, 2, 4, 5}, {4, 3, 5}, {3, 2, 3, 2, 3, 4, 5}}},
    {"\u2581", "", {{3, 4, 5}, {3, 3, 2, 4, 5}, {3, 4, 3, 5}, {3, 3, 4, 5}}},
    {"\u2581", "_", {{3, 4, 5}, {2, 4, 5}, {3, 4, 3, 5}, {3, 3, 4, 5}}},
    {"\u2581", "a", {{4, 5}, {3, 3, 2, 4, 5}, {4, 3, 5}, {3, 3, 4, 5}}},
    {" ", "", {{3, 4, 5}, {3, 3, 2, 4, 5}, {3, 4, 3, 5}, {3, 3, 4, 5}}},
    {" ", "_", {{3, 4, 5}, {2, 4, 5}, {3, 4, 3, 5}, {3, 3, 4, 5}}},
    {" ", "a", {{4, 5}, {3, 3, 2, 4, 5}, {4, 3, 5}, {3, 4, 5}}},
    {"_a", "", {{3, 2, 3, 4, 4, 5}, {3, 2, 3, 4, 3, 2, 4, 5}, {3, 2, 3, 4, 4, 3, 5}, {3, 2, 3, 4, 3, 4, 5}}},
    {"_a", "_", {{3, 2, 3, 4, 4, 5}, {2, 4, 5}, {3, 2, 3, 4, 4, 3, 5}, {3, 2, 3, 4, 3, 4, 5}}},
    {"_a", "a", {{4, 5}, {3, 2, 3, 4, 3, 2, 4, 5}, {4, 3, 5}, {3, 2, 3, 4, 3, 4, 5}}},
  };
  for (const auto& one : cases) {
    CAPTURE(std::string(one.before));
    CAPTURE(std::string(one.added));
    const std::string added = one.added;
    const auto tokens = tokenizer::parse(
      R"({"added_tokens":[)" +
        (added.empty() ? ""
                       : R"({"id":)" + std::string(added == "a" ? "4" : "2") + R"(,"content":")" + added +
             R"(","normalized":true})") +
        R"(],"normalizer":{"type":"Prepend","prepend":")" + one.before +
        R"("},"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"String":"_"},
        "behavior":"Isolated","invert":false},{"type":"Metaspace","replacement":"\u2581","prepend_scheme":"first"}]},
        "model":{"type":"BPE","vocab":{" ":0,"\n":1,"_":2,"\u2581":3,"a":4,"b":5},"merges":[]}})",
      "test");
    for (std::size_t i = 0; i < texts.size(); ++i) {
      CAPTURE(texts[i]);
      CHECK(tokens->encode(texts[i], false) == one.expected[i]);
    }
  }
}

TEST_CASE("ids of added tokens follow the model's without gaps, as in the tokenizers package, and a remark says so") {
  const auto parsed = [](const std::string& added) {
    return tokenizer::parse(
      R"({"added_tokens":[)" + added + R"(],"model":{"type":"BPE","vocab":{"a":0,"b":1},"merges":[]}})", "test");
  };
  const auto gap = parsed(R"({"id":0,"content":"a"},{"id":9,"content":"<s>"},{"id":12,"content":"</s>"})");
  CHECK(gap->encode("<s>b</s>a", false) == std::vector<token_id>{2, 1, 3, 0});
  CHECK(gap->vocab_size() == 4);
  CHECK(gap->remark() ==
        "2 added tokens have ids other than the next after the vocabulary's: `<s>` is read as 2, not "
        "9, and so on");
  const auto twice = parsed(R"({"id":2,"content":"<s>"},{"id":2,"content":"</s>"})");
  CHECK(twice->encode("<s>b</s>", false) == std::vector<token_id>{2, 1, 3});
  CHECK(twice->remark() ==
        "an added token has an id other than the next after the vocabulary's: `</s>` is read as 3, "
        "not 2");
  CHECK(parsed(R"({"id":2,"content":"<s>"},{"id":3,"content":"</s>"})")->remark().empty());
  CHECK_THROWS_AS(tokenizer::parse(R"({"added_tokens":[{"id":9,"content":"<s>"}],
    "model":{"type":"BPE","vocab":{"a":0,"b":2},"merges":[]}})",
                                   "test"),
                  failure); // 2 is taken
}
