// Templates in a program that has a locale of its own.
#include "runtime/chat/jinja/program.hpp"
#include "tests/foreign_locale.hpp"

using namespace troupe;

namespace {

std::string rendered_number_words() {
  std::tm day{}; // Saturday, 5 December 2026
  day.tm_year = 126, day.tm_mon = 11, day.tm_mday = 5, day.tm_wday = 6;
  return jinja::program::parse(
           "{% if 0.5 > 0.25 %}A{% else %}B{% endif %}|{{ '1.5' | float }}|{{ 2.25 | round(1) }}|{{ 1.5 + 1 }}|"
           "{{ '%.2f' | format(3.14159) }}|{{ '%#.3g %E' % (2.0, 1e-7) }}|{{ '{:,.1f}'.format(12345.678) }}|"
           "{{ [0.1, 1e-7, 2.0] | tojson }}|{{ 'TITLE' | lower }}|{{ 'title' | upper }}|{{ 1e22 }}|"
           "{{ {1e22: 'key'}[1e22] }}|{{ strftime_now('%d %B %Y, %a') }}")
    .render(jinja::value(jinja::dict()), {}, day);
}

} // namespace

TEST_CASE("Templates print the same numbers and dates whatever the program's locale") {
  const std::string expected =
    "A|1.5|2.2|2.5|3.14|2.00 1.000000E-07|12,345.7|[0.1, 1e-07, 2.0]|title|TITLE|1e+22|key|05 December 2026, Sat";
  CHECK(rendered_number_words() == expected);
  for (const auto* name : test::foreign_locales) {
    const test::foreign_locale chosen(name);
    CHECK(rendered_number_words() == expected);
  }
}
