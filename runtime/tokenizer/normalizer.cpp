#include "runtime/tokenizer/normalizer.hpp"

#include "runtime/support/meter.hpp"
#include "runtime/support/text/base64.hpp"
#include "runtime/tokenizer/charsmap.hpp"
#include "runtime/tokenizer/unicode.hpp"

#include <algorithm>
#include <memory>
#include <stdexcept>

namespace troupe::tokenization {

namespace {

/// Changes characters, and counts those ahead of `start_until` anew.
template <class Map>
void map_text(section& s, const Map& map) {
  const auto before = s.start_until > 0 ? map(s.text.substr(0, static_cast<std::size_t>(s.start_until))).size() : 0;
  s.text = map(s.text);
  if (s.start_until > 0)
    s.start_until = static_cast<std::ptrdiff_t>(std::min(before, s.text.size()));
}

/// Where the last character of a text begins.
std::size_t last_char(std::string_view text) {
  auto pos = text.size();
  if (pos > 0)
    previous_char(text, pos);
  return pos;
}

void to_form(section& s, normal_form form) {
  // No character below U+0300 composes with one before it or is changed by NFC.
  const auto below_marks = [](unsigned char c) { return c < 0xCC; };
  if (form == normal_form::nfc && std::all_of(s.text.begin(), s.text.end(), below_marks))
    return;
  map_text(s, [form](const std::string& text) { return normalize(text, form); });
}

void strip(section& s, bool left, bool right) {
  std::size_t begin = 0, end = s.text.size();
  meter::charge(end / 16);
  for (std::size_t pos = 0; left && pos < end;) {
    if (!is_whitespace(next_char(s.text, pos)))
      break;
    begin = pos;
  }
  for (std::size_t pos = end; right && pos > begin;) {
    if (!is_whitespace(previous_char(s.text, pos)))
      break;
    end = pos;
  }
  s.start_until = start_behind(s.start_until, begin);
  s.text.resize(end);
  s.text.erase(0, begin);
}

void replace(section& s, const pattern& what, const std::string& content, match_scratch& scratch) {
  what.cut(s.text, scratch, scratch.spans);
  const auto& parts = scratch.spans;
  if (std::none_of(parts.begin(), parts.end(), [](const span& p) { return p.match; }))
    return;
  std::size_t size = 0;
  std::ptrdiff_t start_until = -1;
  const auto starts = [&](std::size_t at) { return static_cast<std::ptrdiff_t>(at) <= s.start_until; };
  for (const auto& part : parts) {
    const auto text = std::string_view(s.text).substr(part.begin, part.end - part.begin);
    const auto last = part.begin + last_char(text);
    if (!part.match && starts(part.begin))
      start_until = static_cast<std::ptrdiff_t>(size + (starts(last) ? last : static_cast<std::size_t>(s.start_until)) -
                                                part.begin);
    else if (part.match && !content.empty() && starts(last)) // aligned with the last character that it replaces
      start_until = static_cast<std::ptrdiff_t>(size + last_char(content));
    size += part.match ? content.size() : text.size();
  }
  s.start_until = start_until;
  scratch.growth.charge(s.text.size(), size);
  std::string out;
  out.reserve(size);
  for (const auto& part : parts)
    out += part.match ? std::string_view(content) : std::string_view(s.text).substr(part.begin, part.end - part.begin);
  s.text = std::move(out);
}

/// Drops the characters for which `drops` holds, and maps the others.
template <class Drops, class Map>
void filter(section& s, const Drops& drops, const Map& map) {
  std::string out;
  out.reserve(s.text.size());
  std::ptrdiff_t start_until = -1;
  for (std::size_t pos = 0; pos < s.text.size();) {
    meter::charge(1);
    const bool starts = static_cast<std::ptrdiff_t>(pos) <= s.start_until;
    const char32_t c = next_char(s.text, pos);
    if (drops(c))
      continue;
    if (starts)
      start_until = static_cast<std::ptrdiff_t>(out.size());
    append_char(out, map(c));
  }
  s.text = std::move(out);
  s.start_until = start_until;
}

char32_t itself(char32_t c) { return c; }

/// Control characters are dropped, and all kinds of space become spaces.
void clean(section& s) {
  const auto is_space = [](char32_t c) { return c == '\t' || c == '\n' || c == '\r' || is_whitespace(c); };
  filter(
    s, [](char32_t c) { return c == 0 || c == 0xFFFD || (is_other(c) && c != '\t' && c != '\n' && c != '\r'); },
    [&](char32_t c) { return is_space(c) ? U' ' : c; });
}

void space_out_chinese(section& s, match_scratch& scratch) {
  std::string out;
  out.reserve(s.text.size());
  auto start_until = s.start_until;
  for (std::size_t pos = 0; pos < s.text.size();) {
    meter::charge(1);
    const auto begin = pos;
    const bool apart = is_chinese(next_char(s.text, pos));
    out += apart ? " " : "";
    if (static_cast<std::ptrdiff_t>(begin) <= s.start_until) // all three are where the character was
      start_until = static_cast<std::ptrdiff_t>(out.size() + (apart ? pos - begin : 0));
    out.append(s.text, begin, pos - begin);
    out += apart ? " " : "";
  }
  s.start_until = start_until;
  scratch.growth.charge(s.text.size(), out.size());
  s.text = std::move(out);
}

/// Whether "Nmt", the normalizer of texts for machine translation, drops a character.
bool nmt_drops(char32_t c) {
  return (c >= 1 && c <= 8) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F;
}
char32_t nmt_maps(char32_t c) {
  const bool space = c == 9 || c == 10 || c == 12 || c == 13 || c == 0x1680 || (c >= 0x200B && c <= 0x200F) ||
    c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
  return space ? U' ' : c;
}

charsmap parse_charsmap(const json::reader& where) {
  const auto bytes = decode_base64(where.string());
  if (!bytes)
    where.refuse("is not valid base64");
  try {
    return charsmap(*bytes);
  } catch (const std::invalid_argument& e) {
    where.refuse(e.what());
  }
}

} // namespace

void normalizer::apply(section& text, match_scratch& scratch) const {
  for (const auto& step : steps_)
    step(text, scratch);
}

void normalizer::add(const json::reader& description) {
  if (steps_.size() >= most_steps_of_a_tokenizer)
    description.refuse("is one step more than the " + std::to_string(most_steps_of_a_tokenizer) + " that are supported",
                       errc::unsupported);
  const auto type = description.at("type").string();
  // The most that a normal form or case mapping shrinks text: decomposed Hangul to a third, mathematical letters to a
  // quarter.
  constexpr std::size_t of_characters = 12;
  const auto form = [&](normal_form f) {
    shrinks_ = shrinks_ < 1000 ? shrinks_ * of_characters : 0;
    steps_.push_back([f](section& s, match_scratch& scratch) {
      const auto before = s.text.size();
      to_form(s, f);
      scratch.growth.charge(before, s.text.size());
    });
  };
  if (type == "Sequence") {
    for (const auto& step : description.at("normalizers").items())
      add(step);
  } else if (type == "NFC") {
    form(normal_form::nfc);
  } else if (type == "NFD") {
    form(normal_form::nfd);
  } else if (type == "NFKC") {
    form(normal_form::nfkc);
  } else if (type == "NFKD") {
    form(normal_form::nfkd);
  } else if (type == "Lowercase") {
    shrinks_ = shrinks_ < 1000 ? shrinks_ * of_characters : 0;
    steps_.push_back([](section& s, match_scratch& scratch) {
      const auto before = s.text.size();
      map_text(s, [](const std::string& text) { return lowercase(text); });
      scratch.growth.charge(before, s.text.size());
    });
  } else if (type == "Strip") {
    shrinks_ = 0;
    const bool left = description.at("strip_left").boolean(), right = description.at("strip_right").boolean();
    steps_.push_back([left, right](section& s, match_scratch&) { strip(s, left, right); });
  } else if (type == "Prepend") {
    steps_.push_back([what = std::string(description.at("prepend").string())](section& s, match_scratch& scratch) {
      if (s.text.empty())
        return;
      scratch.growth.charge(0, what.size());
      s.text.insert(0, what);
      if (s.start_until >= 0) // what is put before a character is where that character was
        s.start_until += static_cast<std::ptrdiff_t>(what.size());
    });
  } else if (type == "Replace") {
    const auto what = pattern::parse(description.at("pattern"));
    const auto content = std::string(description.at("content").string());
    if (what.literal().empty() || what.literal().size() > content.size())
      shrinks_ = 0;
    steps_.push_back([what, content](section& s, match_scratch& scratch) { replace(s, what, content, scratch); });
  } else if (!add_of_sentencepiece(type, description) && !add_of_bert(type, description)) {
    description.refuse("is a normalizer of type `" + std::string(type) +
                         "`, which is not supported (NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, Prepend, "
                         "Replace, Precompiled, Nmt, BertNormalizer and Sequence are)",
                       errc::unsupported);
  }
}

/// `SentencePiece` is Troupe's own: all that a SentencePiece model does to a text.
bool normalizer::add_of_sentencepiece(std::string_view type, const json::reader& description) {
  const auto map_of = [&] {
    const auto field = description.child("precompiled_charsmap");
    return field ? parse_charsmap(*field) : charsmap();
  };
  if (type == "Nmt") {
    steps_.push_back([](section& s, match_scratch&) { filter(s, nmt_drops, nmt_maps); });
  } else if (type == "Precompiled") {
    steps_.push_back([map = std::make_shared<const charsmap>(map_of())](section& s, match_scratch& scratch) {
      if (!map->empty())
        map_text(s, [&](const std::string& text) { return map_graphemes(*map, text, scratch.growth); });
    });
  } else if (type == "SentencePiece") {
    auto rules = std::make_shared<sentencepiece_rules>();
    rules->map = map_of();
    std::vector<trie::entry> kept;
    if (const auto list = description.child("kept"))
      for (const auto& item : list->items()) {
        if (item.string().size() > longest_added_token)
          item.refuse("has " + std::to_string(item.string().size()) + " bytes, at most " +
                        std::to_string(longest_added_token) + " are supported",
                      errc::unsupported);
        kept.push_back({item.string(), 0});
      }
    rules->kept = trie(std::move(kept));
    rules->dummy_prefix = description.boolean("add_dummy_prefix", true);
    rules->remove_extra_spaces = description.boolean("remove_extra_whitespaces", true);
    rules->escape_spaces = description.boolean("escape_whitespaces", true);
    steps_.push_back([rules = std::shared_ptr<const sentencepiece_rules>(rules)](section& s, match_scratch& scratch) {
      s.text = prepare_sentencepiece(*rules, s.text, !s.is_token, scratch.growth);
      s.start_until = std::min<std::ptrdiff_t>(s.start_until, 0);
    });
    if (rules->map.empty() && !rules->remove_extra_spaces)
      return true;
  } else {
    return false;
  }
  shrinks_ = 0;
  return true;
}

bool normalizer::add_of_bert(std::string_view type, const json::reader& description) {
  if (type == "StripAccents") {
    steps_.push_back([](section& s, match_scratch&) { filter(s, is_mark, itself); });
  } else if (type == "BertNormalizer") {
    const bool cleans = description.boolean("clean_text", true);
    const bool chinese = description.boolean("handle_chinese_chars", true);
    const bool lower = description.boolean("lowercase", true);
    const bool accents = description.boolean("strip_accents", lower); // null: as `lowercase`
    steps_.push_back([=](section& s, match_scratch& scratch) {
      if (cleans)
        clean(s);
      if (chinese)
        space_out_chinese(s, scratch);
      const auto before = s.text.size();
      if (accents) {
        to_form(s, normal_form::nfd);
        filter(s, is_nonspacing, itself);
      }
      if (lower)
        map_text(s, [](const std::string& text) { return lowercase(text); });
      scratch.growth.charge(before, s.text.size());
    });
  } else {
    return false;
  }
  shrinks_ = 0;
  return true;
}

} // namespace troupe::tokenization
