#include "runtime/support/text/base64.hpp"
#include "runtime/support/text/hex.hpp"
#include "runtime/support/text/percent_encoding.hpp"

#include <doctest/doctest.h>

using namespace troupe;

TEST_CASE("base64 has padding, and is read with or without it") {
  // The cases of RFC 4648.
  for (const auto& [bytes, text] : {std::pair<std::string, std::string>{"", ""},
                                    {"f", "Zg=="},
                                    {"fo", "Zm8="},
                                    {"foo", "Zm9v"},
                                    {"foob", "Zm9vYg=="},
                                    {"\xff\xfe", "//4="}}) {
    CHECK(encode_base64(bytes) == text);
    CHECK(decode_base64(text) == bytes);
    CHECK(decode_base64(text.substr(0, text.find('='))) == bytes);
  }
  for (const auto* text : {"Z", "Zg==x", "Z g=", "Zm9-"})
    CHECK_FALSE(decode_base64(text));
}

TEST_CASE("hexadecimal digits are written in lower case and read in both") {
  std::string text;
  append_hex(text, 0x0f);
  append_hex(text, 0xa9);
  append_unicode_escape(text, 0x20ac);
  CHECK(text == "0fa9\\u20ac");
  CHECK(hex_value('0') == 0u);
  CHECK(hex_value('9') == 9u);
  CHECK(hex_value('a') == 10u);
  CHECK(hex_value('F') == 15u);
  for (const char c : {'g', 'G', '/', ':', '@', '`', '\0', '\xe1', ' ', '\x01'})
    CHECK_FALSE(hex_value(c));
}

TEST_CASE("percent-encoded text is decoded, and what is not well encoded stays as it is") {
  CHECK(percent_decoded("") == "");
  CHECK(percent_decoded("org%2Fn%c3%a9") == "org/n\xc3\xa9");
  CHECK(percent_decoded("a+b") == "a+b");
  for (const auto* text : {"%", "50%", "%4", "%zz"})
    CHECK(percent_decoded(text) == text);
}
