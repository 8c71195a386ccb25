#include "runtime/tokenizer/normalizer.hpp"

#include "runtime/tokenizer/unicode.hpp"

#include <algorithm>

namespace troupe::tokenization {

namespace {

void to_form(section& s, normal_form form) {
  // No character below U+0300 composes with one before it or is changed by NFC.
  const auto below_marks = [](unsigned char c) { return c < 0xCC; };
  if (form == normal_form::nfc && std::all_of(s.text.begin(), s.text.end(), below_marks))
    return;
  s.text = normalize(s.text, form);
}

void strip(section& s, bool left, bool right) {
  std::size_t begin = 0, end = s.text.size();
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
  s.at_start = s.at_start && begin == 0;
  s.text.resize(end);
  s.text.erase(0, begin);
}

void replace(section& s, const pattern& what, const std::string& content, match_scratch& scratch) {
  what.cut(s.text, scratch, scratch.spans);
  const auto& parts = scratch.spans;
  if (std::none_of(parts.begin(), parts.end(), [](const span& p) { return p.match; }))
    return;
  // A replacement is aligned with the last character that it replaces.
  const auto& first = parts.front();
  std::size_t one = 0;
  if (first.match && first.end > 0)
    next_char(s.text, one);
  if (first.match && (content.empty() || first.end != one))
    s.at_start = s.at_start && first.end == 0;
  std::size_t size = 0;
  for (const auto& part : parts)
    size += part.match ? content.size() : part.end - part.begin;
  scratch.growth.charge(s.text.size(), size);
  std::string out;
  out.reserve(size);
  for (const auto& part : parts)
    out += part.match ? std::string_view(content) : std::string_view(s.text).substr(part.begin, part.end - part.begin);
  s.text = std::move(out);
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
      auto lower = lowercase(s.text);
      scratch.growth.charge(s.text.size(), lower.size());
      s.text = std::move(lower);
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
    });
  } else if (type == "Replace") {
    const auto what = pattern::parse(description.at("pattern"));
    const auto content = std::string(description.at("content").string());
    if (what.literal().empty() || what.literal().size() > content.size())
      shrinks_ = 0;
    steps_.push_back([what, content](section& s, match_scratch& scratch) { replace(s, what, content, scratch); });
  } else {
    description.refuse(
      "is a normalizer of type `" + std::string(type) +
        "`, which is not supported (NFC, NFD, NFKC, NFKD, Lowercase, Strip, Prepend, Replace and Sequence are)",
      errc::unsupported);
  }
}

} // namespace troupe::tokenization
