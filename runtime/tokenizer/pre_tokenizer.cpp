#include "runtime/tokenizer/pre_tokenizer.hpp"

#include "runtime/support/meter.hpp"
#include "runtime/tokenizer/unicode.hpp"

#include <optional>

namespace troupe::tokenization {

namespace {

constexpr std::string_view gpt2_words = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

constexpr bool stands_for_itself(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
}

/// The treatment of delimiters.
enum class behavior { isolated, removed, merged_with_previous, merged_with_next, contiguous };

behavior parse_behavior(const json::reader& f) {
  const auto name = f.string();
  if (name == "Isolated")
    return behavior::isolated;
  if (name == "Removed")
    return behavior::removed;
  if (name == "MergedWithPrevious")
    return behavior::merged_with_previous;
  if (name == "MergedWithNext")
    return behavior::merged_with_next;
  if (name == "Contiguous")
    return behavior::contiguous;
  f.refuse("is `" + std::string(name) +
             "`, which is not supported (Isolated, Removed, MergedWithPrevious, MergedWithNext and Contiguous are)",
           errc::unsupported);
}

/// Joins or drops delimiters in place, so that every remaining span is a word.
void settle(std::vector<span>& parts, behavior how) {
  std::size_t kept = 0;
  switch (how) {
    case behavior::isolated: return;
    case behavior::removed: std::erase_if(parts, [](const span& p) { return p.match; }); return;
    case behavior::contiguous:
      for (std::size_t i = 0; i < parts.size(); ++i) {
        if (kept > 0 && parts[kept - 1].match == parts[i].match)
          parts[kept - 1].end = parts[i].end;
        else
          parts[kept++] = parts[i];
      }
      break;
    case behavior::merged_with_previous: {
      bool after_match = false;
      for (std::size_t i = 0; i < parts.size(); ++i) {
        const span part = parts[i];
        if (part.match && !after_match && kept > 0)
          parts[kept - 1].end = part.end;
        else
          parts[kept++] = part;
        after_match = part.match;
      }
      break;
    }
    case behavior::merged_with_next:
      for (std::size_t i = 0; i < parts.size(); ++i) {
        // If there are several delimiters in a row, only the last one joins the next word.
        const bool joins = kept > 0 && !parts[i].match && parts[i - 1].match;
        if (joins)
          parts[kept - 1].end = parts[i].end;
        else
          parts[kept++] = parts[i];
      }
      break;
  }
  parts.resize(kept);
}

/// Replaces each word by the parts that `cut(word, parts)` yields.
template <class Cut>
void split_words(word_list& list, match_scratch& scratch, behavior how, bool invert, const Cut& cut) {
  std::vector<word_list::word> result;
  result.reserve(list.words.size());
  auto& parts = scratch.spans;
  for (const auto& w : list.words) {
    parts.clear();
    cut(list.view(w), parts);
    if (invert)
      for (auto& part : parts)
        part.match = !part.match;
    settle(parts, how);
    for (const auto& part : parts)
      if (part.begin < part.end)
        result.push_back({w.begin + part.begin, w.begin + part.end, start_behind(w.start_until, part.begin)});
  }
  list.words = std::move(result);
}

void split_at(word_list& list, match_scratch& scratch, const pattern& what, behavior how, bool invert) {
  split_words(list, scratch, how, invert,
              [&](std::string_view text, std::vector<span>& parts) { what.cut(text, scratch, parts); });
}

/// Every character for which `is_delimiter` holds is a separate match.
template <class Predicate>
void split_at_chars(word_list& list, match_scratch& scratch, behavior how, const Predicate& is_delimiter) {
  split_words(list, scratch, how, false, [&](std::string_view text, std::vector<span>& parts) {
    std::size_t done = 0;
    for (std::size_t pos = 0; pos < text.size();) {
      meter::charge(1);
      const std::size_t begin = pos;
      if (!is_delimiter(next_char(text, pos)))
        continue;
      if (done < begin)
        parts.push_back({done, begin, false});
      parts.push_back({begin, pos, true});
      done = pos;
    }
    if (done < text.size())
      parts.push_back({done, text.size(), false});
  });
}

/// Runs of characters of one class, `\w+|[^\w\s]+`; whitespace is dropped.
void split_whitespace(word_list& list, match_scratch& scratch) {
  split_words(list, scratch, behavior::removed, false, [&](std::string_view text, std::vector<span>& parts) {
    const auto class_of = [](char32_t c) { return is_word(c) ? 2 : is_whitespace(c) ? 0 : 1; };
    int current = -1;
    for (std::size_t pos = 0; pos < text.size();) {
      meter::charge(1);
      const std::size_t begin = pos;
      const int k = class_of(next_char(text, pos));
      if (k == current)
        parts.back().end = pos;
      else
        parts.push_back({begin, pos, k == 0});
      current = k;
    }
  });
}

/// Rewrites the text word by word. `rewrite(word, start_until, out)` appends the new form, at most a few times as long,
/// and moves `start_until` if it is not negative.
template <class Rewrite>
void rewrite_words(word_list& list, match_scratch& scratch, const Rewrite& rewrite) {
  std::string out;
  out.reserve(list.text.size() + list.text.size() / 4);
  for (auto& w : list.words) {
    meter::charge(1 + (w.end - w.begin) / 16);
    const std::size_t begin = out.size();
    rewrite(list.view(w), w.start_until, out);
    w.begin = begin;
    w.end = out.size();
  }
  scratch.growth.charge(list.text.size(), out.size());
  list.text = std::move(out);
}

void to_byte_level(word_list& list, match_scratch& scratch) {
  const auto& alphabet = byte_level_alphabet();
  rewrite_words(list, scratch, [&](std::string_view word, std::ptrdiff_t& start_until, std::string& out) {
    const auto begin = out.size();
    const auto before = start_until > 0 ? static_cast<std::size_t>(start_until) : 0;
    for (std::size_t i = 0; i < word.size(); ++i) {
      if (i == before && i > 0)
        start_until = static_cast<std::ptrdiff_t>(out.size() - begin);
      out += alphabet[static_cast<unsigned char>(word[i])];
    }
  });
}

void add_prefix_spaces(word_list& list, match_scratch& scratch) {
  rewrite_words(list, scratch, [](std::string_view word, std::ptrdiff_t& start_until, std::string& out) {
    if (!word.starts_with(' ')) {
      out += ' ';
      start_until += start_until >= 0 ? 1 : 0;
    }
    out += word;
  });
}

enum class prepend_scheme { always, first, never };

prepend_scheme parse_prepend_scheme(const json::reader& f) {
  const auto name = f.string();
  if (name == "always")
    return prepend_scheme::always;
  if (name == "first")
    return prepend_scheme::first;
  if (name == "never")
    return prepend_scheme::never;
  f.refuse("must be `always`, `first` or `never`, not `" + std::string(name) + "`");
}

pre_tokenizer_step metaspace(const json::reader& description) {
  std::string mark;
  mark += description.at("replacement").character();
  const auto scheme_field = description.child("prepend_scheme");
  auto scheme = scheme_field ? parse_prepend_scheme(*scheme_field) : prepend_scheme::always;
  if (!description.boolean("add_prefix_space", true)) { // the older spelling of `never`
    if (scheme_field && scheme != prepend_scheme::never)
      description.refuse("has `add_prefix_space` that contradicts `prepend_scheme`");
    scheme = prepend_scheme::never;
  }
  const bool split = description.boolean("split", true);
  return [=](word_list& list, match_scratch& scratch) {
    rewrite_words(list, scratch, [&](std::string_view word, std::ptrdiff_t& start_until, std::string& out) {
      const bool wanted = scheme == prepend_scheme::always || (scheme == prepend_scheme::first && start_until >= 0);
      const auto begin = out.size();
      const auto before = static_cast<std::size_t>(std::max<std::ptrdiff_t>(start_until, 0));
      if (wanted && !word.starts_with(' ') && !word.starts_with(mark))
        out += mark;
      for (std::size_t i = 0; i < word.size(); ++i) {
        if (i == before && start_until >= 0)
          start_until = static_cast<std::ptrdiff_t>(out.size() - begin);
        if (word[i] == ' ')
          out += mark;
        else
          out += word[i];
      }
    });
    if (split) {
      std::size_t end = 0;
      const char32_t c = next_char(mark, end);
      split_at_chars(list, scratch, behavior::merged_with_next, [c](char32_t other) { return c == other; });
    }
  };
}

} // namespace

const std::array<std::string, 256>& byte_level_alphabet() {
  static const auto alphabet = [] {
    std::array<std::string, 256> result;
    char32_t next = 0x100;
    for (int byte = 0; byte < 256; ++byte)
      append_char(result[static_cast<std::size_t>(byte)],
                  stands_for_itself(byte) ? static_cast<char32_t>(byte) : next++);
    return result;
  }();
  return alphabet;
}

int byte_of(char32_t c) {
  static const auto bytes = [] {
    std::array<std::int16_t, 0x144> result;
    result.fill(-1);
    for (int byte = 0; byte < 256; ++byte) {
      std::size_t pos = 0;
      result[next_char(byte_level_alphabet()[static_cast<std::size_t>(byte)], pos)] = static_cast<std::int16_t>(byte);
    }
    return result;
  }();
  return c < bytes.size() ? bytes[c] : -1;
}

void pre_tokenizer::apply(const section& text, word_list& words, match_scratch& scratch) const {
  words.text = text.text;
  words.words.assign(1, {0, text.text.size(), text.start_until});
  for (const auto& step : steps_)
    step(words, scratch);
}

void pre_tokenizer::add(const json::reader& description) {
  if (steps_.size() >= most_steps_of_a_tokenizer)
    description.refuse("is one step more than the " + std::to_string(most_steps_of_a_tokenizer) + " that are supported",
                       errc::unsupported);
  const auto type = description.at("type").string();
  if (type == "Sequence") {
    for (const auto& step : description.at("pretokenizers").items())
      add(step);
  } else if (type == "ByteLevel") {
    byte_level_ = true;
    if (description.at("add_prefix_space").boolean())
      steps_.push_back(add_prefix_spaces);
    if (description.boolean("use_regex", true))
      steps_.push_back([words = pattern::regex(gpt2_words, description)](word_list& list, match_scratch& scratch) {
        split_at(list, scratch, words, behavior::isolated, false);
      });
    steps_.push_back(to_byte_level);
  } else if (type == "Split") {
    drops_ |= parse_behavior(description.at("behavior")) == behavior::removed;
    steps_.push_back([what = pattern::parse(description.at("pattern")),
                      how = parse_behavior(description.at("behavior")), invert = description.boolean("invert", false)](
                       word_list& list, match_scratch& scratch) { split_at(list, scratch, what, how, invert); });
  } else if (type == "Metaspace") {
    steps_.push_back(metaspace(description));
  } else if (type == "Digits") {
    const auto how = description.at("individual_digits").boolean() ? behavior::isolated : behavior::contiguous;
    steps_.push_back(
      [how](word_list& list, match_scratch& scratch) { split_at_chars(list, scratch, how, is_numeric); });
  } else if (type == "Punctuation") {
    const auto found = description.child("behavior");
    const auto how = found ? parse_behavior(*found) : behavior::isolated;
    drops_ |= how == behavior::removed;
    steps_.push_back(
      [how](word_list& list, match_scratch& scratch) { split_at_chars(list, scratch, how, is_punctuation); });
  } else if (type == "Whitespace") {
    drops_ = true;
    steps_.push_back(split_whitespace);
  } else if (type == "WhitespaceSplit") {
    drops_ = true;
    steps_.push_back(
      [](word_list& list, match_scratch& scratch) { split_at_chars(list, scratch, behavior::removed, is_whitespace); });
  } else if (type == "BertPreTokenizer") {
    drops_ = true;
    steps_.push_back([](word_list& list, match_scratch& scratch) {
      split_at_chars(list, scratch, behavior::removed, is_whitespace);
      split_at_chars(list, scratch, behavior::isolated, is_punctuation);
    });
  } else {
    description.refuse("is a pre-tokenizer of type `" + std::string(type) +
                         "`, which is not supported (ByteLevel, Split, Metaspace, Digits, Punctuation, Whitespace, "
                         "WhitespaceSplit, BertPreTokenizer and Sequence are)",
                       errc::unsupported);
  }
}

} // namespace troupe::tokenization
