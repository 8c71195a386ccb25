#include "api/cli/values.hpp"
#include "runtime/support/error.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>

using namespace troupe;
using namespace troupe::cli;

namespace {

template <class F>
std::string complaint(F f) {
  try {
    f();
  } catch (const failure& e) {
    return e.what();
  }
  return "none";
}

} // namespace

TEST_CASE("sizes count in powers of 1024 or of 1000, as their unit says") {
  CHECK(parse_size("0") == 0);
  CHECK(parse_size("4096") == 4096);
  CHECK(parse_size("17B") == 17);
  CHECK(parse_size("3KB") == 3000);
  CHECK(parse_size("3KiB") == 3072);
  CHECK(parse_size("500MB") == 500'000'000);
  CHECK(parse_size("512MiB") == 536'870'912);
  CHECK(parse_size("2GiB") == 2'147'483'648);
  CHECK(parse_size("2 GiB") == 2'147'483'648);
  CHECK(parse_size("7GB") == 7'000'000'000);
  CHECK(parse_size("1TB") == 1'000'000'000'000);
  CHECK(parse_size("1TiB") == 1'099'511'627'776);
}

TEST_CASE("fractions of a unit are exact to the byte") {
  CHECK(parse_size("1.5GiB") == 1'610'612'736);
  CHECK(parse_size("0.25KiB") == 256);
  CHECK(parse_size("0.1GiB") == 107'374'182);
  CHECK(parse_size("2.000001MB") == 2'000'001);
}

TEST_CASE("the largest size is that of a signed 64-bit number") {
  CHECK(parse_size("9223372036854775B") == 9'223'372'036'854'775);
  CHECK(parse_size("8388607TiB") == 9'223'370'937'343'148'032u);
  CHECK(complaint([] { parse_size("8388608TiB"); }) == "must be a size such as 512MiB or 2GiB, found `8388608TiB`");
}

TEST_CASE("invalid sizes are refused with the text found") {
  for (const std::string bad : {"", "GiB", "2XB", "2gib", "-1", "+1", "1e9", "0x10", "1.GiB", ".5GiB", "2GiBs",
                                "2 GiB ", " 2GiB", "1,5GiB", "99999999999999999999", "1.1234567GB"})
    CHECK(complaint([&] { parse_size(bad); }) == "must be a size such as 512MiB or 2GiB, found `" + bad + "`");
}

TEST_CASE("a small number without a unit is no size") {
  CHECK(complaint([] { parse_size("2"); }) ==
        "must be a size with a unit such as 512MiB or 2GiB, found `2`, which would be bytes (2B)");
  CHECK(complaint([] { parse_size("0.5"); }) == "none"); // 0
  CHECK(complaint([] { parse_size("1023"); }) != "none");
  CHECK(parse_size("1024") == 1024);
  CHECK(parse_size("2B") == 2);
}

TEST_CASE("times are in milliseconds unless they have another unit") {
  using std::chrono::microseconds;
  CHECK(parse_time("80ms") == microseconds(80'000));
  CHECK(parse_time("80") == microseconds(80'000));
  CHECK(parse_time("0.5 ms") == microseconds(500));
  CHECK(parse_time("0.2s") == microseconds(200'000));
  CHECK(parse_time("600s") == microseconds(600'000'000));
  CHECK(parse_time("0.1") == microseconds(100));
}

TEST_CASE("invalid times are refused with the text found") {
  for (const std::string bad : {"", "ms", "0", "-80ms", "0.09ms", "601s", "80us", "80 m s", "80ms ", " 80ms", "1e2",
                                "nan", "inf", "0x10", "80,5", "999999999999999999999999s"})
    CHECK(complaint([&] { parse_time(bad); }) ==
          "must be a time from 0.1ms to 600s such as 80ms or 0.2s, found `" + bad + "`");
}

TEST_CASE("integers are read whole or not at all") {
  CHECK(parse_integer("0", 0, 10) == 0);
  CHECK(parse_integer("-1", -1, 10) == -1);
  for (const std::string bad : {"", "11", "-2", "1.0", "1 ", "one", "99999999999999999999"})
    CHECK(complaint([&] { parse_integer(bad, -1, 10); }) == "must be an integer from -1 to 10, found `" + bad + "`");
}

TEST_CASE("lists of integers are separated by commas, spaces and line breaks") {
  CHECK(parse_integers("1,4,16", 1, 99) == std::vector<std::int64_t>{1, 4, 16});
  CHECK(parse_integers(" 1, 4\n16\t", 1, 99) == std::vector<std::int64_t>{1, 4, 16});
  CHECK(parse_integers("", 1, 99).empty());
  CHECK(complaint([] { parse_integers("1,x,3", 1, 99); }) == "must be an integer from 1 to 99, found `x`");
  CHECK(complaint([] { parse_integers("0", 1, 99); }) == "must be an integer from 1 to 99, found `0`");
}
