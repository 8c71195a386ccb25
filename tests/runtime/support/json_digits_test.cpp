#include "runtime/support/json/json_digits.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

using namespace troupe;

namespace {

std::string minified(std::string_view text, errc code = errc::bad_request) {
  return json::minified(json::document::parse(text, "test", code).root());
}

} // namespace

TEST_CASE("numbers of a client's JSON keep the digits that a double has not") {
  for (const std::string text :
       {"12345678901234567890123", "-18446744073709551616", "100000000000000000000", "0.1000000000000000055",
        R"({"1\"2":[12345678901234567890123,"\\",{"a":-5,"b":[],"c":{}},0.12345678901234567891,true,null],"é":0.5})",
        R"([18446744073709551615,18446744073709551616,-9223372036854775808,-9223372036854775809])"}) {
    CAPTURE(text);
    CHECK(minified(text) == text);
  }
  const auto document = json::document::parse("{\n\"a\": [1.5, 18446744073709551616], \"b\": 9223372036854775807}",
                                              "test", errc::bad_request);
  CHECK(json::digits(document.root().at_key("a").at(1)) == "18446744073709551616");
  CHECK(!json::digits(document.root().at_key("a").at(0)));
  CHECK(!json::digits(document.root().at_key("b")));
  CHECK(document.root().at_key("b").is_int64()); // also beside one that does not fit
  CHECK(double(document.root().at_key("a").at(1)) == 18446744073709551616.0);
  CHECK(json::minified(document.root().at_key("a")) == "[1.5,18446744073709551616]");
}

TEST_CASE("digits follow a document that is moved, and numbers of files have none") {
  auto first = json::document::parse("[12345678901234567890123]", "test", errc::bad_request);
  const auto second = std::move(first);
  CHECK(json::minified(second.root()) == "[12345678901234567890123]");
  CHECK(minified("[12345678901234567890123]", errc::bad_file).find("e") != std::string::npos);
  CHECK(minified("[0.5,1e-999999999999999999999,1e-400]") == "[0.5,0.0,0.0]");
}

TEST_CASE("exponents are written out") {
  CHECK(json::without_exponent("1.50e3") == "1500");
  CHECK(json::without_exponent("-1.5e-3") == "-0.0015");
  CHECK(json::without_exponent("123.456e1") == "1234.56");
  CHECK(json::without_exponent("0.00") == "0");
  CHECK(json::without_exponent("1E+2") == "100");
  CHECK(json::without_exponent("12345678901234567890123") == "12345678901234567890123");
}
