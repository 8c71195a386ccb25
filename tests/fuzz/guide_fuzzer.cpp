// Mutates schemas, regular expressions, grammars, structural tags and documents, compiles them, and checks what guides
// promise: a sentence for what is refused, masks that agree with advance, answers that do not depend on what ran
// before, and no source that takes long. The same seed makes the same inputs; what breaks something is written to a
// file.
//   troupe_guide_fuzz SECONDS [SEED]
//   troupe_guide_fuzz FILE...          KIND on the first line, then the source
#include "runtime/guide/guide.hpp"
#include "runtime/support/error.hpp"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

namespace {

using namespace troupe;
using namespace troupe::guides;
using kind = guide_source::kind;

constexpr std::size_t longest_source = 20'000;
constexpr unsigned longest_seconds = 30; // per input
constexpr guide_limits fuzz_limits{
  .source = 30'000, .expressions = 50'000, .rules = 20'000, .states = 3'000, .items = 400'000, .memory = 24u << 20};

struct input {
  kind what = kind::regex;
  std::string text;
};

const std::vector<input>& seeds() {
  static const std::vector<input> all{
    {kind::json_schema, R"({"type":"object","properties":{"a":{"type":"string","maxLength":9},"b":{"type":"integer",
      "minimum":-3,"maximum":700,"multipleOf":5}},"required":["a"],"additionalProperties":{"type":"boolean"}})"},
    {kind::json_schema, R"({"$defs":{"n":{"type":"object","properties":{"v":{"enum":[1,"x",null]},"n":{"anyOf":[
      {"type":"null"},{"$ref":"#/$defs/n"}]}},"required":["v","n"]}},"$ref":"#/$defs/n"})"},
    {kind::json_schema, R"({"oneOf":[{"type":"array","prefixItems":[{"const":1}],"items":{"type":"number",
      "exclusiveMinimum":0.5},"minItems":1,"maxItems":3,"contains":{"const":2}},{"not":{"type":["array","object"]}}]})"},
    {kind::json_schema, R"({"if":{"properties":{"k":{"const":"a"}},"required":["k"]},"then":{"required":["x"]},
      "else":{"properties":{"y":{"type":"string","format":"date-time","pattern":"^2"}}},"type":"object",
      "patternProperties":{"^p[0-9]+$":{"type":"string","format":"uuid"}},"propertyNames":{"maxLength":6},
      "minProperties":1,"maxProperties":4,"dependentRequired":{"x":["y"]}})"},
    {kind::json_schema,
     R"({"allOf":[{"type":"string","minLength":2},{"pattern":"^(a|b)*c?$"},{"not":{"const":"ab"}}]})"},
    {kind::regex, R"((a|b(c[d-z\w])*){2,5}(?:\d{3}|[^\s"]+)?\.x*)"},
    {kind::regex, "((a*)*b)*(.*c.{9}d)"},
    {kind::grammar,
     "root ::= (\"a\" item)+ | other{2,3}\nitem ::= [a-z]* \"é\"? root?\nother ::= \"(\" other \")\" | [0-9]\n"},
    {kind::grammar,
     "start: sum\n?sum: atom | sum (\"+\"|\"-\") atom\natom: NUM | \"(\" sum \")\"\n"
     "NUM: /[0-9]+(\\.[0-9]*)?/\n%ignore /[ \\t]+/\n%import common.WS\n"},
    {kind::structural_tag,
     R"({"structures":[{"begin":"<f>","schema":{"type":"integer"},"end":"</f>"}],"triggers":["<f"]})"},
    {kind::structural_tag, R"({"type":"structural_tag","format":{"type":"triggered_tags","triggers":["<t"],"tags":[
      {"begin":"<t>","content":{"type":"json_schema","json_schema":{"type":"array"}},"end":"</t>"}]}})"},
  };
  return all;
}

constexpr std::array words{"\"type\":",
                           "\"object\"",
                           "\"anyOf\":[",
                           "\"oneOf\":[",
                           "\"not\":{",
                           "\"$ref\":\"#\"",
                           "\"items\":",
                           "\"pattern\":\"^a+$\"",
                           "\"maxLength\":",
                           "\"enum\":[",
                           "\"const\":",
                           "\"format\":\"email\"",
                           "null",
                           "true",
                           "{",
                           "}",
                           "[",
                           "]",
                           ",",
                           "(",
                           ")",
                           "*",
                           "+",
                           "?",
                           "{2,900}",
                           "|",
                           "\\p{L}",
                           "[^a]",
                           "(?=",
                           "\\b",
                           "^",
                           "$",
                           "::=",
                           "root",
                           "%json {}",
                           "/a/i",
                           "é",
                           "\xE2\x80\xA8",
                           "~ 3..5",
                           "1e400",
                           "-0",
                           "99999999999999999999"};

/// Bytes, words of JSON and parts of characters. The last id ends.
std::shared_ptr<const guide_vocabulary> fuzz_vocabulary() {
  std::vector<guide_vocabulary::entry> entries;
  const auto add = [&](std::string bytes) {
    entries.push_back({static_cast<token_id>(entries.size()), std::move(bytes)});
  };
  for (int b = 0; b < 256; ++b)
    add(std::string(1, static_cast<char>(b)));
  for (const auto* text :
       {"{\"",  "\": ", "\",", "\"a\":", "true", "null", "12",       "-0.5",  "},",   "abc", " the", "aaaaaaaa", "é",
        "\xC3", "\n  ", "<f>", "</f",    "<t>{", "日本", "\xE6\x97", "\\u00", "\\\"", "a\"", "((",   "))",       "+1"})
    add(text);
  const auto end = static_cast<token_id>(entries.size());
  return std::make_shared<const guide_vocabulary>(std::move(entries), std::vector{end},
                                                  static_cast<std::size_t>(end) + 1);
}

input current;
std::string broken_file;

void leave_input(int number) {
  // Not async-signal-safe; the process is lost anyway.
  std::ofstream(broken_file, std::ios::binary) << static_cast<int>(current.what) << '\n' << current.text;
  std::fprintf(stderr, "the input is in %s\n", broken_file.c_str());
  ::signal(number, SIG_DFL);
  ::raise(number);
}

[[noreturn]] void broken(const char* what) {
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

class guide_fuzzer {
public:
  explicit guide_fuzzer(std::uint64_t seed) : random_(seed), kept_(seeds()) {}

  input next() {
    auto one = kept_[below(kept_.size())];
    for (auto left = 1 + below(4); left > 0; --left)
      mutate(one.text);
    one.text.resize(std::min(one.text.size(), longest_source));
    if (below(40) == 0)
      one.what = static_cast<kind>(below(6));
    return one;
  }

  void keep(input one) {
    if (kept_.size() < 2000)
      kept_.push_back(std::move(one));
    else
      kept_[seeds().size() + below(kept_.size() - seeds().size())] = std::move(one);
  }

  /// Returns whether it was compiled.
  bool run(const input& one) {
    current = one;
    ::alarm(longest_seconds);
    guide_source source{.what = one.what, .text = one.text, .any_order = below(2) == 0, .compact = below(2) == 0};
    if (one.what == kind::choice)
      source.choices = {one.text.substr(0, one.text.size() / 2), one.text};
    bool compiled = false;
    try {
      const auto guide = compile_guide(source, words_, fuzz_limits);
      compiled = true;
      walk(guide, below(2) == 0 ? one.text : std::string());
    } catch (const failure& f) {
      if (f.what_failed().code != errc::bad_request || f.what_failed().message.empty())
        broken("a refusal that is no sentence about the request");
    }
    ::alarm(0);
    return compiled;
  }

private:
  std::size_t below(std::size_t bound) { return bound ? random_() % bound : 0; }

  void mutate(std::string& text) {
    const auto at = below(text.size() + 1);
    const auto count = std::min(text.size() - at, std::size_t(1) << below(7));
    switch (below(8)) {
      case 0:
        if (at < text.size())
          text[at] = static_cast<char>(text[at] ^ (1 << below(8)));
        break;
      case 1: text.insert(at, 1, static_cast<char>(below(256))); break;
      case 2: text.insert(at, words[below(words.size())]); break;
      case 3: text.erase(at, count); break;
      case 4: text.insert(at, text.substr(below(text.size() + 1), count)); break;
      case 5: {
        const auto& other = kept_[below(kept_.size())].text;
        text.insert(at, other.substr(below(other.size() + 1), count));
        break;
      }
      case 6: {
        const auto digit = text.find_first_of("0123456789", at);
        if (digit != text.npos)
          text.replace(digit, 1, std::to_string(std::size_t(1) << below(34)));
        break;
      }
      default: {
        const auto part = text.substr(at, 1 + below(6));
        for (auto left = std::size_t(1) << below(8); left > 0; --left)
          text.insert(at, part);
      }
    }
  }

  /// Tokens at random among those allowed, and now and then others; `document` is tried first.
  void walk(const std::shared_ptr<const guide>& guide, const std::string& document) {
    guide_state state(guide);
    state.advance(document);
    std::vector<std::uint64_t> mask(words_->words());
    for (int step = 0; step < 40; ++step) {
      state.mask(mask);
      std::vector<token_id> allowed;
      for (token_id id = 0; id < static_cast<token_id>(words_->size()); ++id) {
        const bool is_allowed = (mask[static_cast<std::size_t>(id) / 64] >> (id % 64) & 1) != 0;
        if (is_allowed && !words_->is_end(id))
          allowed.push_back(id);
        if ((step == 0 || below(16) == 0) && guide_state(state).advance(id) != is_allowed)
          broken("a mask that does not agree with advance");
      }
      if (words_->is_end(static_cast<token_id>(words_->size() - 1)) &&
          (mask.back() >> ((words_->size() - 1) % 64) & 1) != static_cast<std::uint64_t>(state.can_end()))
        broken("a mask that does not agree with can_end");
      const auto forced = state.forced();
      if (!forced.empty() && !guide_state(state).advance(forced))
        broken("forced text that the guide forbids");
      if (allowed.empty())
        return;
      if (!state.advance(allowed[below(allowed.size())]))
        broken("an allowed token that the guide forbids");
    }
    guide_state again(guide);
    if (!again.advance(state.text()))
      broken("a text that its guide accepts in tokens but not at once");
  }

  std::mt19937_64 random_;
  std::vector<input> kept_;
  std::shared_ptr<const guide_vocabulary> words_ = fuzz_vocabulary();
};

} // namespace

int main(int count, char** arguments) {
  for (const int number : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGALRM})
    ::signal(number, leave_input);
  char* end = nullptr;
  const auto limit = std::chrono::seconds(count > 1 ? std::strtoul(arguments[1], &end, 10) : 0);
  const std::uint64_t seed = count > 2 && !*end ? std::strtoull(arguments[2], nullptr, 10) : 1;
  broken_file = "guide-fuzz-" + std::to_string(seed) + ".input";
  guide_fuzzer fuzzer(seed);
  if (count < 2 || *end) {
    for (int i = 1; i < count; ++i) {
      std::ifstream file(arguments[i], std::ios::binary);
      int what = 0;
      file >> what;
      file.get();
      std::printf("%s: %s\n", arguments[i],
                  fuzzer.run({static_cast<kind>(what % 6), {std::istreambuf_iterator<char>(file), {}}}) ? "compiled"
                                                                                                        : "refused");
    }
    return 0;
  }
  for (const auto& one : seeds())
    if (!fuzzer.run(one))
      broken("a seed that is refused");
  std::uint64_t tried = 0, compiled = 0;
  const auto begin = std::chrono::steady_clock::now();
  for (; std::chrono::steady_clock::now() - begin < limit; ++tried) {
    auto one = fuzzer.next();
    if (!fuzzer.run(one))
      continue;
    ++compiled;
    fuzzer.keep(std::move(one));
  }
  std::printf("seed %llu: %llu sources in %lld s, %llu compiled, nothing broke\n",
              static_cast<unsigned long long>(seed), static_cast<unsigned long long>(tried),
              static_cast<long long>(limit.count()), static_cast<unsigned long long>(compiled));
  return 0;
}
