#include "runtime/guide/seen_values.hpp"

#include "runtime/guide/intern_table.hpp"
#include "runtime/support/meter.hpp"
#include "runtime/support/text/hex.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

namespace troupe::guides {

namespace {

constexpr value_hash seed(std::uint64_t kind) {
  return {kind * 0x9E3779B97F4A7C15u + 1, kind * 0xC2B2AE3D27D4EB4Fu + 7};
}

value_hash mixed(value_hash h, std::uint64_t value) {
  h.a = hash_mix(h.a, value);
  h.b = (h.b ^ (value + 0x632BE59BD9B4E019u)) * 0xD6E8FEB86659FD93u;
  h.b ^= h.b >> 32;
  return h;
}
value_hash mixed(value_hash h, value_hash other) { return mixed(mixed(h, other.a), other.b); }

enum kind : std::uint64_t { of_string = 1, of_number, of_literal, of_array, of_object, of_member };

/// Whole numbers are compared exactly, others as doubles: readers keep no more.
value_hash hash_of_number(std::string_view text) {
  const bool minus = text.starts_with('-');
  std::string digits;
  std::int64_t exponent = 0;
  bool fraction = false;
  for (std::size_t i = minus; i < text.size(); ++i) {
    if (text[i] == '.')
      fraction = true;
    else if (text[i] == 'e' || text[i] == 'E') {
      const auto begin = text.data() + i + (i + 1 < text.size() && text[i + 1] == '+' ? 2 : 1);
      std::int64_t written = 0;
      if (std::from_chars(begin, text.data() + text.size(), written).ec == std::errc::result_out_of_range)
        written = *begin == '-' ? -1'000'000'000 : 1'000'000'000;
      exponent += std::clamp<std::int64_t>(written, -1'000'000'000, 1'000'000'000);
      break;
    } else {
      if (text[i] != '0' || !digits.empty())
        digits += text[i];
      exponent -= fraction;
    }
  }
  while (digits.ends_with('0')) {
    digits.pop_back();
    ++exponent;
  }
  if (!digits.empty() && exponent < 0) {
    double value = 0;
    std::from_chars(text.data(), text.data() + text.size(), value);
    std::array<char, 64> buffer;
    if (value == std::floor(value) && std::fabs(value) < 9e15) { // rounded to a whole number
      const auto end =
        std::to_chars(buffer.data(), buffer.data() + buffer.size(), static_cast<std::int64_t>(value)).ptr;
      return hash_of_number({buffer.data(), end});
    }
    std::uint64_t bits = 0;
    static_assert(sizeof bits == sizeof value);
    std::copy_n(reinterpret_cast<const char*>(&value), sizeof value, reinterpret_cast<char*>(&bits));
    return mixed(mixed(seed(of_number), 1), bits);
  }
  auto h = mixed(seed(of_number), digits.empty() ? 2 : minus ? 3 : 4);
  for (const auto c : digits)
    h = mixed(h, static_cast<unsigned char>(c));
  return mixed(h, digits.empty() ? 0 : static_cast<std::uint64_t>(exponent));
}

} // namespace

// -- sets -----------------------------------------------------------------------

const value_hash* seen_set::find(value_hash key) const {
  for (auto i = recent_.size(); i-- > 0;)
    if (recent_[i].key == key)
      return &recent_[i].value;
  if (!old_)
    return nullptr;
  const auto mask = old_->slots.size() - 1;
  for (auto at = key.a & mask; old_->slots[at].used; at = (at + 1) & mask)
    if (old_->slots[at].key == key)
      return &old_->slots[at].value;
  return nullptr;
}

void seen_set::table::place(const entry& e) {
  auto at = e.key.a & (slots.size() - 1);
  while (slots[at].used && slots[at].key != e.key)
    at = (at + 1) & (slots.size() - 1);
  count += !slots[at].used;
  slots[at] = e;
}

void seen_set::table::put(const entry& e) {
  if ((count + 1) * 2 > slots.size()) {
    std::vector<entry> before(std::max<std::size_t>(128, slots.size() * 2));
    before.swap(slots);
    count = 0;
    for (const auto& b : before)
      if (b.used)
        place(b);
  }
  place(e);
}

void seen_set::put(value_hash key, value_hash value) {
  recent_.push_back({key, value, true});
  if (recent_.size() < most_recent)
    return;
  if (!old_ || old_.use_count() > 1) {
    if (old_)
      meter::charge(old_->slots.size() / 4);
    old_ = old_ ? std::make_shared<table>(*old_) : std::make_shared<table>();
  }
  for (const auto& e : recent_)
    old_->put(e);
  recent_.clear();
}

// -- values ---------------------------------------------------------------------

bool seen_values::was_there(value_hash h) const {
  if (levels_.empty() || deeper_ > 0)
    return false;
  const auto& in = levels_.back();
  return (!in.is_object || !in.has_name) && in.seen.find(h);
}

/// A value or name ends.
seen_values::event seen_values::end(value_hash h) {
  last_ = h;
  const event result{true, was_there(h)};
  if (levels_.empty() || deeper_ > 0)
    return result;
  auto& in = levels_.back();
  if (!in.is_object) {
    in.sum = mixed(in.sum, h);
    ++in.count;
    in.seen.put(h, {});
  } else if (!in.has_name) {
    in.name = h;
    in.has_name = true;
  } else { // in any order; of a name that comes twice, the last one counts
    in.has_name = false;
    const auto more = mixed(mixed(seed(of_member), in.name), h);
    if (const auto* before = in.seen.find(in.name)) {
      in.sum.a -= before->a;
      in.sum.b -= before->b;
      --in.count;
    }
    in.sum.a += more.a;
    in.sum.b += more.b;
    ++in.count;
    in.seen.put(in.name, more);
  }
  return result;
}

/// What could go on has ended.
void seen_values::settle() {
  if (at_.number.empty())
    return;
  const auto h = hash_of_number(at_.number);
  at_.number.clear();
  end(h);
}

seen_values seen_values::innermost(std::size_t levels) const {
  seen_values result;
  const auto kept = static_cast<std::ptrdiff_t>(std::min(levels, levels_.size()));
  result.levels_.assign(levels_.end() - kept, levels_.end());
  result.deeper_ = deeper_;
  result.at_ = at_;
  return result;
}

void seen_values::open(bool is_object) {
  if (levels_.size() >= deepest)
    ++deeper_;
  else
    levels_.push_back({.is_object = is_object, .sum = seed(is_object ? of_object : of_array)});
}

seen_values::event seen_values::close() {
  if (deeper_ > 0) {
    --deeper_;
    return {};
  }
  if (levels_.empty())
    return {};
  const auto h = mixed(levels_.back().sum, levels_.back().count);
  levels_.pop_back();
  return end(h);
}

void seen_values::add_character(std::uint32_t c) { at_.string = mixed(at_.string, c); }

// Characters are added by their bytes in UTF-8, escaped or not.
void seen_values::take_in_string(unsigned char byte) {
  const auto add = [&](std::uint32_t c) {
    if (c < 0x80)
      add_character(c);
    else if (c < 0x800) {
      add_character(0xC0 | c >> 6);
      add_character(0x80 | (c & 0x3F));
    } else if (c < 0x10000) {
      add_character(0xE0 | c >> 12);
      add_character(0x80 | (c >> 6 & 0x3F));
      add_character(0x80 | (c & 0x3F));
    } else {
      add_character(0xF0 | c >> 18);
      add_character(0x80 | (c >> 12 & 0x3F));
      add_character(0x80 | (c >> 6 & 0x3F));
      add_character(0x80 | (c & 0x3F));
    }
  };
  if (at_.unicode_left > 0) {
    at_.unicode = at_.unicode << 4 | static_cast<std::uint32_t>(hex_value(static_cast<char>(byte)).value_or(0));
    if (--at_.unicode_left > 0)
      return;
    if (at_.unicode >= 0xD800 && at_.unicode < 0xDC00)
      at_.high_surrogate = at_.unicode;
    else if (at_.unicode >= 0xDC00 && at_.unicode < 0xE000 && at_.high_surrogate != 0)
      add(0x10000 + ((std::exchange(at_.high_surrogate, 0) - 0xD800) << 10) + (at_.unicode - 0xDC00));
    else
      add(at_.unicode);
  } else if (at_.escaped) {
    at_.escaped = false;
    switch (byte) {
      case 'n': add('\n'); break;
      case 't': add('\t'); break;
      case 'r': add('\r'); break;
      case 'b': add('\b'); break;
      case 'f': add('\f'); break;
      case 'u':
        at_.unicode = 0;
        at_.unicode_left = 4;
        break;
      default: add_character(byte);
    }
  } else if (byte == '\\')
    at_.escaped = true;
  else
    add_character(byte);
}

seen_values::event seen_values::take(unsigned char byte) {
  if (at_.in_string) {
    if (byte != '"' || at_.escaped) {
      take_in_string(byte);
      return {};
    }
    at_.in_string = false;
    return end(at_.string);
  }
  const bool digit = byte >= '0' && byte <= '9';
  if (digit || byte == '-' || (!at_.number.empty() && (byte == '.' || byte == 'e' || byte == 'E' || byte == '+'))) {
    at_.number += static_cast<char>(byte);
    if (!digit)
      return {};
    meter::charge(at_.number.size() / 8);
    last_ = hash_of_number(at_.number);
    return {true, was_there(last_)};
  }
  settle();
  switch (byte) {
    case '"':
      at_.in_string = true;
      at_.escaped = false;
      at_.unicode_left = at_.high_surrogate = 0;
      at_.string = seed(of_string);
      return {};
    case '[': open(false); return {};
    case '{': open(true); return {};
    case ']':
    case '}': return close();
    case 't':
    case 'f':
    case 'n':
      if (at_.literal == 0)
        at_.literal = static_cast<char>(byte);
      return {};
    case 'e': // true, false
      return at_.literal == 0 ? event{}
                              : end(mixed(seed(of_literal), static_cast<unsigned char>(std::exchange(at_.literal, 0))));
    case 'l': // the second one of null
      if (at_.literal == 'n') {
        at_.literal = 'l';
        return {};
      }
      if (at_.literal != 'l')
        return {};
      at_.literal = 0;
      return end(mixed(seed(of_literal), 'n'));
    default: return {};
  }
}

value_hash seen_values::hash(std::string_view json) {
  seen_values v;
  for (const unsigned char b : json)
    v.take(b);
  return v.last_;
}

} // namespace troupe::guides
