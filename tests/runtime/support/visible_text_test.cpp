#include "runtime/support/text/visible_text.hpp"

#include <doctest/doctest.h>

using namespace troupe;

TEST_CASE("What a terminal would act upon is written out, and all else stays") {
  CHECK(visible("a\x1b]52;c;eA==\x07z") == "a\\x1b]52;c;eA==\\x07z");
  CHECK(visible("one\ttwo\nthree \xC3\xA9 \xE6\x97\xA5 \\n") == "one\ttwo\nthree \xC3\xA9 \xE6\x97\xA5 \\n");
  CHECK(visible("\xC2\x9B"
                "31m \x7f \x0b\x0c\x08") == "\\u009b31m \\x7f \\x0b\\x0c\\x08"); // CSI in one character
  CHECK(visible("a\x9b"
                "b\xE6\x97") ==
        "a\\x9b"
        "b\\xe6\\x97");
  CHECK(visible("line\r\nline\rover\r") == "line\nline\\rover\\r");
  CHECK(visible("\xE2\x80\xAE"
                "exe.txt") == "\\u202eexe.txt");
  const std::string family = "\xF0\x9F\x91\xA8\xE2\x80\x8D\xF0\x9F\x91\xA9", arabic = "\xD8\xB3\xE2\x80\x8F!";
  CHECK(visible(family + arabic) == family + arabic);
  CHECK(visible(arabic + "\xE2\x81\xA6\n\\", true) == "\xD8\xB3\\u200f!\\u2066\n\\");
  CHECK(visible(visible("\x1b[0m\\")) == visible("\x1b[0m\\"));
}

TEST_CASE("Text that arrives in pieces is as visible as the whole, wherever it is cut") {
  const std::string text = "a\x1b\r\n\xE6\x97\xA5\r\xC2\x9B\xE6\x97 \xF0\x9F\x91\xA8\x80z";
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    std::string out;
    visible_text pieces;
    pieces.push(text.substr(0, cut), out);
    pieces.push(text.substr(cut), out);
    CHECK(out == visible(text));
  }
}

TEST_CASE("Names are shown on one line, in their order, and nothing in them is invisible") {
  CHECK(visible_name("a\nb\tc\\d\x1b[31m") == "a\\nb\\tc\\\\d\\x1b[31m");
  CHECK(visible_name("x\xE2\x80\xAE"
                     "gpj.exe\xE2\x81\xA6\xE2\x80\x8B\xEF\xBB\xBF") == "x\\u202egpj.exe\\u2066\\u200b\\ufeff");
  CHECK(visible_name("\xC2\x85\xE2\x80\xA8\xF3\xA0\x81\x81") == "\\u0085\\u2028\\U000e0041");
  CHECK(visible_name("\xE2\x80") == "\\xe2\\x80");
  CHECK(visible_name("na\xC3\xAFve \xE6\x97\xA5\xE6\x9C\xAC") == "na\xC3\xAFve \xE6\x97\xA5\xE6\x9C\xAC");
}
