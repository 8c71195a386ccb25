#include "runtime/support/text/number_text.hpp"

#include <cstdlib>
#include <limits>

#include <locale.h>
#include <time.h>

namespace troupe {

namespace {

locale_t c_locale() {
  static const locale_t made = ::newlocale(LC_ALL_MASK, "C", nullptr);
  return made;
}

std::string printed(double value, std::chars_format format, int precision) {
  constexpr std::size_t most_whole = std::numeric_limits<double>::max_exponent10 + 8; // sign, digits, point, exponent
  std::string text(most_whole + static_cast<std::size_t>(precision), '\0');
  text.resize(static_cast<std::size_t>(
    std::to_chars(text.data(), text.data() + text.size(), value, format, precision).ptr - text.data()));
  return text;
}

} // namespace

std::string to_fixed(double value, int decimals) { return printed(value, std::chars_format::fixed, decimals); }
std::string to_scientific(double value, int decimals) {
  return printed(value, std::chars_format::scientific, decimals);
}
std::string to_general(double value, int digits) { return printed(value, std::chars_format::general, digits); }

std::string to_decimal(double value) {
  auto text = to_fixed(value, 6);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.'))
    text.pop_back();
  return text;
}

std::optional<double> to_real(const std::string& text) {
  char* end = nullptr;
  const double value = ::strtod_l(text.c_str(), &end, c_locale());
  return text.empty() || end != text.data() + text.size() ? std::nullopt : std::optional(value);
}

std::optional<std::string> to_date(const std::string& format, const std::tm& time, std::size_t most) {
  std::string text(most + 2, '\0');
  // The trailing space distinguishes an empty date from one that does not fit.
  const auto size = ::strftime_l(text.data(), text.size(), (format + ' ').c_str(), &time, c_locale());
  if (size == 0)
    return std::nullopt;
  text.resize(size - 1);
  return text;
}

} // namespace troupe
