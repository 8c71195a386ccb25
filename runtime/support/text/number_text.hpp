// Writes numbers and dates as text, and reads numbers, alike in every locale. printf, strtod, std::to_string and
// streams follow the locale, and a program that embeds the engine may have chosen one with a decimal comma. Pure
// functions.
#pragma once

#include <charconv>
#include <ctime>
#include <locale>
#include <optional>
#include <string>
#include <utility>

namespace troupe {

/// Print numbers as printf's %.*f, %.*e and %.*g do.
std::string to_fixed(double value, int decimals);
std::string to_scientific(double value, int decimals);
std::string to_general(double value, int digits = 6);
/// Six decimals at most, without zeros at the end: 0.5.
std::string to_decimal(double value);

/// The shortest digits that read back as the same number of this type: "0.05", not "0.050000".
template <class T>
std::string shortest_digits(T value) {
  char digits[32];
  return {digits, std::to_chars(digits, digits + sizeof digits, value).ptr};
}

/// Reads the whole text as strtod does: also infinity, NaN and hexadecimal digits.
std::optional<double> to_real(const std::string& text);

/// Prints a date as strftime does, in English; nothing if that takes more than `most` bytes.
std::optional<std::string> to_date(const std::string& format, const std::tm& time, std::size_t most = 64);

/// A stream that does not ask the program's locale.
template <class Stream>
class classic : public Stream {
public:
  template <class... Ts>
  explicit classic(Ts&&... arguments) : Stream(std::forward<Ts>(arguments)...) {
    this->imbue(std::locale::classic());
  }
};

} // namespace troupe
