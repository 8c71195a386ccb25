// Finding, stripping, replacing and splitting.
#include "runtime/chat/jinja/text/walk.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace troupe::jinja::text {

// -- finding ------------------------------------------------------------------

std::size_t find(meter& m, std::string_view s, std::string_view part, std::size_t from) {
  if (from > s.size() || part.size() > s.size() - from)
    return s.npos;
  // memmem() is linear for all inputs, std::string::find is not. Windows overlap so that no match is missed.
  const auto window = std::max(meter::part, part.size()) + part.size();
  m.spend(part.size());
  for (auto at = from; at + part.size() <= s.size(); at += window - part.size() + 1) {
    const auto some = s.substr(at, window);
    const auto* const hit = static_cast<const char*>(memmem(some.data(), some.size(), part.data(), part.size()));
    m.spend(8 + step * (hit ? static_cast<std::size_t>(hit - some.data()) : some.size()) + part.size());
    if (hit)
      return static_cast<std::size_t>(hit - s.data());
  }
  return s.npos;
}

namespace {

std::string backwards(meter& m, std::string_view s) {
  m.make(s.size());
  return {s.rbegin(), s.rend()};
}

} // namespace

std::size_t find_last(meter& m, std::string_view s, std::string_view part) {
  const auto found = find(m, backwards(m, s), backwards(m, part));
  return found == s.npos ? found : s.size() - found - part.size();
}

std::size_t count(meter& m, std::string_view s, std::string_view part) {
  if (part.empty())
    return length(m, s) + 1;
  std::size_t n = 0;
  for (auto at = find(m, s, part); at != s.npos; at = find(m, s, part, at + part.size()))
    ++n;
  return n;
}

// -- cutting ------------------------------------------------------------------

std::string_view strip(meter& m, std::string_view s, std::string_view chars, bool left, bool right) {
  const auto cut = [&](char32_t c) {
    m.spend(step + chars.size());
    if (chars.empty())
      return is_space(c);
    for (std::size_t at = 0; at < chars.size();)
      if (next_char(chars, at) == c)
        return true;
    return false;
  };
  while (left && !s.empty()) {
    std::size_t at = 0;
    if (!cut(next_char(s, at)))
      break;
    s.remove_prefix(at);
  }
  while (right && !s.empty()) {
    std::size_t begin = 0;
    if (!cut(last(s, s.size(), begin)))
      break;
    s = s.substr(0, begin);
  }
  return s;
}

std::string replace(meter& m, std::string_view s, std::string_view from, std::string_view to, long long limit) {
  output out(m);
  std::size_t at = 0;
  while (limit != 0) {
    const auto found = from.empty() ? at : find(m, s, from, at);
    if (found == s.npos || found > s.size())
      break;
    m.spend(step);
    out.add(s.substr(at, found - at));
    out.add(to);
    at = found + from.size();
    --limit;
    if (from.empty()) {
      if (at >= s.size())
        return out.str();
      const auto begin = at;
      next_char(s, at);
      out.add(s.substr(begin, at - begin));
    }
  }
  out.add(s.substr(std::min(at, s.size())));
  return out.str();
}

namespace {

/// A growing list of parts of a text, charged.
class parts {
public:
  explicit parts(meter& m) : meter_(m) {}
  void add(std::string_view part) {
    meter_.make(2 * sizeof part);
    all_.push_back(part);
  }
  std::vector<std::string_view> all() { return std::move(all_); }
  std::vector<std::string_view> reversed() {
    std::reverse(all_.begin(), all_.end());
    return std::move(all_);
  }

private:
  meter& meter_;
  std::vector<std::string_view> all_;
};

} // namespace

std::vector<std::string_view> split(meter& m, std::string_view s, std::string_view separator, long long limit) {
  parts found(m);
  if (!separator.empty()) {
    std::size_t begin = 0;
    for (; limit != 0; --limit) {
      const auto at = find(m, s, separator, begin);
      if (at == s.npos)
        break;
      found.add(s.substr(begin, at - begin));
      begin = at + separator.size();
    }
    found.add(s.substr(begin));
    return found.all();
  }
  for (s = strip(m, s, {}, true, false); !s.empty(); s = strip(m, s, {}, true, false)) {
    if (limit-- == 0) {
      found.add(s);
      break;
    }
    std::size_t end = s.size();
    walk(m, s, [&](char32_t c, std::size_t begin, auto) {
      if (is_space(c))
        end = begin;
      return end == s.size();
    });
    found.add(s.substr(0, end));
    s.remove_prefix(end);
  }
  return found.all();
}

std::vector<std::string_view> split_right(meter& m, std::string_view s, std::string_view separator, long long limit) {
  parts found(m);
  if (!separator.empty()) {
    const auto from_behind = backwards(m, s), looked_for = backwards(m, separator);
    std::size_t begin = 0; // in the reversed text
    for (; limit != 0; --limit) {
      const auto at = find(m, from_behind, looked_for, begin);
      if (at == s.npos)
        break;
      found.add(s.substr(s.size() - at, at - begin));
      begin = at + separator.size();
    }
    found.add(s.substr(0, s.size() - begin));
    return found.reversed();
  }
  for (s = strip(m, s, {}, false, true); !s.empty(); s = strip(m, s, {}, false, true)) {
    if (limit-- == 0) {
      found.add(s);
      break;
    }
    auto begin = s.size();
    for (std::size_t at = s.size(); at > 0 && !is_space(last(s, at, at));) {
      m.spend(step);
      begin = at;
    }
    found.add(s.substr(begin));
    s = s.substr(0, begin);
  }
  return found.reversed();
}

std::vector<std::string_view> split_lines(meter& m, std::string_view s, bool keep_ends) {
  parts lines(m);
  std::size_t line = 0;
  bool pair = false; // the line feed of a CR LF pair
  walk(m, s, [&](char32_t c, std::size_t begin, std::size_t end) {
    if (std::exchange(pair, false))
      return true;
    if (!is_line_end(c))
      return true;
    pair = c == '\r' && end < s.size() && s[end] == '\n';
    end += pair ? 1 : 0;
    lines.add(s.substr(line, (keep_ends ? end : begin) - line));
    line = end;
    return true;
  });
  if (line < s.size())
    lines.add(s.substr(line));
  return lines.all();
}

} // namespace troupe::jinja::text
