#include "runtime/tokenizer/charsmap.hpp"

#include "runtime/support/meter.hpp"
#include "runtime/tokenizer/unicode.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace troupe::tokenization {

namespace {

/// Bytes of a text that a rule replaces; real ones have less than 40. Bounds the work on a damaged array.
constexpr std::size_t longest_rule = 256;

constexpr std::string_view escaped_space = "\u2581";

/// Charges the budget for what a text grows, little by little.
class growing_text {
public:
  growing_text(std::size_t before, growth_budget& growth) : growth_(growth), charged_(before) {
    text_.reserve(before + before / 4);
  }
  void add(std::string_view part) {
    if (text_.size() + part.size() > charged_) {
      growth_.charge(charged_, text_.size() + part.size());
      charged_ = text_.size() + part.size();
    }
    text_ += part;
  }
  bool ends_with(std::string_view end) const { return text_.ends_with(end); }
  void drop(std::size_t bytes) { text_.resize(text_.size() - bytes); }
  std::string take() { return std::move(text_); }

private:
  growth_budget& growth_;
  std::size_t charged_;
  std::string text_;
};

} // namespace

charsmap::charsmap(std::string_view bytes) {
  static_assert(std::endian::native == std::endian::little);
  if (bytes.empty())
    return;
  std::uint32_t size = 0;
  if (bytes.size() < sizeof size)
    throw std::invalid_argument("is cut off");
  std::memcpy(&size, bytes.data(), sizeof size);
  bytes.remove_prefix(sizeof size);
  if (size % sizeof(std::uint32_t) != 0)
    throw std::invalid_argument("has an array of " + std::to_string(size) + " bytes, expected a multiple of 4");
  if (size > bytes.size())
    throw std::invalid_argument("has an array of " + std::to_string(size) + " bytes, but only " +
                                std::to_string(bytes.size()) + " are there");
  array_.resize(size / sizeof(std::uint32_t));
  if (size > 0)
    std::memcpy(array_.data(), bytes.data(), size);
  replacements_ = bytes.substr(size);
  if (!is_utf8(replacements_))
    throw std::invalid_argument("has replacements that are not valid UTF-8");
}

/// Calls f(rule) for the texts that `text` begins with, shorter ones first, while it returns true.
template <class F>
void charsmap::rules(std::string_view text, const F& f) const {
  if (array_.empty())
    return;
  // A unit: a label or a value in the low bits, whether a text ends here in bit 8, the offset of the children above.
  const auto offset = [](std::uint32_t unit) { return (unit >> 10) << ((unit & 1u << 9) >> 6); };
  std::size_t at = offset(array_[0]);
  for (std::size_t length = 0; length < text.size() && length < longest_rule;) {
    const auto byte = static_cast<unsigned char>(text[length++]);
    at ^= byte;
    if (byte == 0 || at >= array_.size() || (array_[at] & (1u << 31 | 0xFF)) != byte)
      return;
    const auto unit = array_[at];
    at ^= offset(unit);
    if ((unit >> 8 & 1) == 0)
      continue;
    if (at >= array_.size())
      return;
    const std::size_t begin = array_[at] & ~(1u << 31);
    if (begin >= replacements_.size() || (static_cast<unsigned char>(replacements_[begin]) & 0xC0) == 0x80)
      return;
    const auto end = std::min(replacements_.find('\0', begin), replacements_.size());
    if (!f(rule{length, std::string_view(replacements_).substr(begin, end - begin)}))
      return;
  }
}

std::optional<charsmap::rule> charsmap::shortest(std::string_view text) const {
  std::optional<rule> found;
  rules(text, [&](const rule& r) {
    found = r;
    return false;
  });
  return found;
}

std::optional<charsmap::rule> charsmap::longest(std::string_view text) const {
  std::optional<rule> found;
  rules(text, [&](const rule& r) {
    found = r;
    return true;
  });
  return found;
}

std::string map_graphemes(const charsmap& map, std::string_view text, growth_budget& growth) {
  constexpr std::size_t longest_mapped = 5;
  growing_text out(text.size(), growth);
  for (std::size_t begin = 0; begin < text.size();) {
    const auto end = grapheme_end(text, begin);
    meter::charge(end - begin);
    const auto cluster = text.substr(begin, end - begin);
    begin = end;
    const auto whole = cluster.size() <= longest_mapped ? map.shortest(cluster) : std::nullopt;
    if (whole) {
      out.add(whole->by);
      continue;
    }
    for (std::size_t pos = 0; pos < cluster.size();) {
      const auto start = pos;
      next_char(cluster, pos);
      const auto character = cluster.substr(start, pos - start);
      const auto found = map.shortest(character);
      out.add(found ? found->by : character);
    }
  }
  return out.take();
}

std::string prepare_sentencepiece(const sentencepiece_rules& rules, std::string_view text, bool whole,
                                  growth_budget& growth) {
  const std::string_view space = rules.escape_spaces ? escaped_space : std::string_view(" ");
  /// The length of what is replaced at the start of `text`, and its replacement.
  const auto first_rule = [&] {
    meter::charge(1);
    std::size_t kept = 0;
    rules.kept.prefixes(text, [&](std::size_t length, std::int32_t) { kept = length; });
    if (kept > 0)
      return charsmap::rule{kept, text.substr(0, kept)};
    if (const auto found = rules.map.longest(text))
      return *found;
    std::size_t length = 0;
    next_char(text, length);
    return charsmap::rule{length, text.substr(0, length)};
  };
  const bool trims = whole && rules.remove_extra_spaces;
  while (trims && !text.empty()) {
    const auto rule = first_rule();
    if (rule.by != " ")
      break;
    text.remove_prefix(rule.length);
  }
  growing_text out(text.size(), growth);
  if (text.empty())
    return {};
  if (whole && rules.dummy_prefix)
    out.add(space);
  bool after_space = trims;
  while (!text.empty()) {
    const auto rule = first_rule();
    text.remove_prefix(rule.length);
    auto by = rule.by;
    while (after_space && by.starts_with(' '))
      by.remove_prefix(1);
    if (!by.empty())
      after_space = by.ends_with(' ');
    if (!rules.remove_extra_spaces)
      after_space = false;
    for (std::size_t at; (at = by.find(' ')) != std::string_view::npos; by.remove_prefix(at + 1)) {
      out.add(by.substr(0, at));
      out.add(space);
    }
    out.add(by);
  }
  while (trims && out.ends_with(space))
    out.drop(space.size());
  return out.take();
}

} // namespace troupe::tokenization
