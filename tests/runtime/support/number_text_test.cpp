// Numbers, dates and letters, also where the program has a locale of its own.
#include "runtime/support/text/number_text.hpp"

#include "runtime/sampling/sampling_params.hpp"
#include "runtime/support/error.hpp"
#include "runtime/support/text/ascii.hpp"
#include "runtime/support/text/byte_size.hpp"
#include "tests/foreign_locale.hpp"

#include <cmath>
#include <cstdio>
#include <functional>
#include <sstream>
#include <vector>

using namespace troupe;

namespace {

std::string printed_by_c(const char* format, int precision, double value) {
  std::string text(2000, '\0');
  text.resize(static_cast<std::size_t>(std::snprintf(text.data(), text.size(), format, precision, value)));
  return text;
}

/// What is printed and read, whatever the locale.
std::string all_printed() {
  std::string all;
  const auto add = [&](const std::string& text) { all += text + '|'; };
  for (const double v : {0.5, -1234567.891, 1e-7, 1e300})
    add(to_fixed(v, 2) + ' ' + to_scientific(v, 3) + ' ' + to_general(v));
  classic<std::ostringstream> stream;
  stream << 1234567 << ' ' << 0.25;
  add(stream.str());
  add(to_general(to_real("0.5").value_or(-1)) + (to_real("0,5") ? "read" : ""));
  std::tm day{};
  day.tm_year = 126, day.tm_mon = 11, day.tm_mday = 5, day.tm_wday = 6;
  add(to_date("%a %A %b %B %d %p", day).value());
  add(to_size(1536));
  add(ascii_lower("TITLE \xC3\x84"));
  sampling_params hot;
  hot.temperature = 1234.5;
  try {
    hot.validate(100);
  } catch (const failure& f) {
    add(f.what());
  }
  return all;
}

} // namespace

TEST_CASE("Numbers are printed as printf does, of any size and precision") {
  for (const double v : {0.0, -0.0, 0.5, 2.5, 1e-7, 123456.789, -9.995, 1e22, 5e-324, 1.7e308, double(INFINITY)})
    for (const int precision : {0, 1, 6, 17, 300}) {
      CHECK(to_fixed(v, precision) == printed_by_c("%.*f", precision, v));
      CHECK(to_scientific(v, precision) == printed_by_c("%.*e", precision, v));
      CHECK(to_general(v, precision) == printed_by_c("%.*g", precision, v));
    }
}

TEST_CASE("Numbers are read as strtod does, but the whole text") {
  CHECK(to_real("0.5") == 0.5);
  CHECK(to_real("+1e999") == double(INFINITY));
  CHECK(to_real("1e-999") == 0);
  CHECK(std::isnan(to_real("nan").value()));
  for (const auto* text : {"", "0.5x", "x", "1,5"})
    CHECK_FALSE(to_real(text));
}

TEST_CASE("Dates that do not fit are none") {
  CHECK(to_date("%Y", std::tm{}, 4) == "1900");
  CHECK_FALSE(to_date("%Y", std::tm{}, 3));
  CHECK(to_date("", std::tm{}, 0) == "");
}

TEST_CASE("Numbers, dates and letters do not depend on the program's locale") {
  const auto expected = all_printed();
  CHECK(expected.find("Sat Saturday Dec December 05 AM") != std::string::npos);
  for (const auto* name : test::foreign_locales) {
    const test::foreign_locale chosen(name);
    CHECK(all_printed() == expected);
  }
}
