#include "runtime/sampling/sampling_table.hpp"
#include "runtime/support/error.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>

using namespace troupe;

TEST_CASE("every parameter of the table has a name of its own, a valid default and, as an option, a line of help") {
  std::set<std::string_view> names;
  sampling_fields::for_each([&](const auto& field) {
    CAPTURE(field.name);
    CHECK(names.insert(field.name).second);
    const auto initial = sampling_params{}.*field.member;
    CHECK(initial >= field.least);
    CHECK(initial <= field.most);
    CHECK((!field.sources.command_line || *field.help != '\0'));
  });
}

TEST_CASE("the bounds of every parameter are valid, and nothing beyond them") {
  sampling_fields::for_each([]<class T>(const sampling_field<T>& field) {
    CAPTURE(field.name);
    const auto valid = [&](double value) {
      sampling_params params;
      params.max_tokens = sampling_fields::most_int; // leaves room for any min_tokens
      params.*field.member = static_cast<T>(value);
      try {
        params.validate(1);
        return true;
      } catch (const failure& f) {
        CHECK(f.what_failed().param == field.name);
        return false;
      }
    };
    const auto least = static_cast<double>(field.least), most = static_cast<double>(field.most);
    CHECK(valid(least));
    CHECK(valid(most));
    CHECK_FALSE(valid(least - 1));
    if (most < sampling_fields::most_int)
      CHECK_FALSE(valid(most + 1));
  });
}
