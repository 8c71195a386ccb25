// Walks over text and builds it, charging a meter. Internal to the implementation of text.hpp.
#pragma once

#include "runtime/chat/jinja/text/text.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

namespace troupe::jinja::text {

/// Steps per byte of a code point that is looked up.
inline constexpr std::size_t step = 4;

inline utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

/// Calls `each(code point, begin, end)` until it returns false. Charges in growing parts, so that a walk which ends
/// early costs little.
template <class Each>
void walk(meter& m, std::string_view s, Each each) {
  for (std::size_t at = 0; at < s.size();) {
    const auto end = std::min(s.size(), at + std::clamp<std::size_t>(at, 16, meter::part));
    m.spend(step * (end - at));
    while (at < end) {
      const auto begin = at;
      const auto c = next_char(s, at);
      if (!each(c, begin, at))
        return;
    }
  }
}

/// A growing text that charges for its bytes.
class output {
public:
  explicit output(meter& m) : meter_(m) {}
  void add(std::string_view s) {
    meter_.make(s.size());
    text_.append(s);
  }
  void add(char32_t c) {
    meter_.make(1);
    append_char(text_, c);
  }
  std::string str() { return std::move(text_); }

private:
  meter& meter_;
  std::string text_;
};

} // namespace troupe::jinja::text
