#include "api/cli/values.hpp"

#include "runtime/support/error.hpp"
#include "runtime/support/text/number_text.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>

namespace troupe::cli {

namespace {

struct unit {
  std::string_view name;
  std::uint64_t bytes;
};

constexpr auto units = std::to_array<unit>({
  {"", 1},
  {"B", 1},
  {"KB", 1'000},
  {"MB", 1'000'000},
  {"GB", 1'000'000'000},
  {"TB", 1'000'000'000'000},
  {"KiB", std::uint64_t(1) << 10},
  {"MiB", std::uint64_t(1) << 20},
  {"GiB", std::uint64_t(1) << 30},
  {"TiB", std::uint64_t(1) << 40},
});

constexpr std::string_view digits = "0123456789";

/// Fewer bytes are hardly meant by a number alone.
constexpr unsigned least_without_unit = 1024;

/// Removes and returns the leading characters of `text` that are in `characters`.
std::string_view consume(std::string_view& text, std::string_view characters) {
  const auto taken = text.substr(0, std::min(text.find_first_not_of(characters), text.size()));
  text.remove_prefix(taken.size());
  return taken;
}

[[noreturn]] void throw_not_a_size(std::string_view text) {
  throw failure(errc::bad_request, "must be a size such as 512MiB or 2GiB, found `" + std::string(text) + "`");
}

/// Runs a check for CLI11: returns its error message, or nothing.
template <class Check>
std::string error_of(Check check) {
  try {
    check();
    return {};
  } catch (const failure& e) {
    return e.what();
  }
}

} // namespace

std::size_t parse_size(std::string_view text) {
  auto rest = text;
  auto whole = consume(rest, digits);
  std::string_view fraction;
  if (rest.starts_with('.')) {
    rest.remove_prefix(1);
    fraction = consume(rest, digits);
    if (fraction.empty())
      throw_not_a_size(text);
  }
  consume(rest, " ");
  const auto found = std::ranges::find(units, rest, &unit::name);
  // 22 digits times 2^40 fit 128 bits.
  if (found == units.end() || whole.empty() || whole.size() > 16 || fraction.size() > 6)
    throw_not_a_size(text);
  unsigned __int128 bytes = 0;
  for (char c : whole)
    bytes = bytes * 10 + static_cast<unsigned>(c - '0');
  unsigned scale = 1;
  for (char c : fraction) {
    bytes = bytes * 10 + static_cast<unsigned>(c - '0');
    scale *= 10;
  }
  bytes = bytes * found->bytes / scale;
  if (bytes > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
    throw_not_a_size(text);
  if (rest.empty() && bytes > 0 && bytes < least_without_unit)
    throw failure(errc::bad_request,
                  "must be a size with a unit such as 512MiB or 2GiB, found `" + std::string(text) +
                    "`, which would be bytes (" + std::string(text) + "B)");
  return static_cast<std::size_t>(bytes);
}

std::pair<std::string, std::size_t> parse_folder_and_size(const std::string& text) {
  std::pair<std::string, std::size_t> found{text, 0};
  const auto colon = text.rfind(':');
  if (colon != text.npos && colon + 1 < text.size() && text[colon + 1] >= '0' && text[colon + 1] <= '9' &&
      text.find('/', colon) == text.npos) {
    found = {text.substr(0, colon), parse_size(std::string_view(text).substr(colon + 1))};
    if (found.second == 0)
      throw failure(errc::bad_request, "the size must not be 0");
  }
  if (found.first.empty())
    throw failure(errc::bad_request, "must name a folder");
  return found;
}

std::chrono::microseconds parse_time(std::string_view text) {
  auto unit = text;
  double value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  unit.remove_prefix(static_cast<std::size_t>(end - text.data()));
  consume(unit, " ");
  const double us = unit == "s" ? 1e6 : unit.empty() || unit == "ms" ? 1e3 : 0;
  // Written so that NaN is refused.
  if (problem != std::errc() || !(value * us >= 100 && value * us <= 600e6))
    throw failure(errc::bad_request,
                  "must be a time from 0.1ms to 600s such as 80ms or 0.2s, found `" + std::string(text) + "`");
  return std::chrono::microseconds(static_cast<std::int64_t>(value * us));
}

CLI::Validator size_value() {
  return CLI::Validator([](std::string& text) { return error_of([&] { text = std::to_string(parse_size(text)); }); },
                        "");
}

CLI::Validator word_or_integer(std::string word, std::int64_t low, std::int64_t high) {
  return CLI::Validator(
    [=](std::string& text) {
      if (text == word) {
        text = "0";
        return std::string();
      }
      const auto why = error_of([&] { parse_integer(text, low, high); });
      return why.empty() ? why : "must be " + word + " or" + why.substr(std::string_view("must be").size());
    },
    "");
}

CLI::Validator integer_between(std::int64_t low, std::int64_t high) {
  return CLI::Validator([=](std::string& text) { return error_of([&] { parse_integer(text, low, high); }); }, "");
}

CLI::Option* add_file(CLI::App& to, const std::string& flag, std::string& file, const std::string& help) {
  return to.add_option(flag, file, help)->type_name("FILE");
}

CLI::Option* add_integer(CLI::App& to, const std::string& flag, int& value, int low, int high,
                         const std::string& help) {
  return to.add_option(flag, value, help)->check(integer_between(low, high))->type_name("INT")->capture_default_str();
}

CLI::Validator number_between(double low, double high) {
  return CLI::Validator(
    [=](std::string& text) -> std::string {
      double value = 0;
      const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
      if (ec == std::errc() && end == text.data() + text.size() && value >= low && value <= high)
        return {};
      return "must be a number from " + shortest_digits(low) + " to " + shortest_digits(high) + ", found `" + text +
        "`";
    },
    "");
}

CLI::Validator one_of(std::vector<std::string> choices) {
  std::string name;
  for (const auto& choice : choices)
    name += choice + '\n';
  return CLI::Validator(
    [=](std::string& text) -> std::string {
      if (std::ranges::find(choices, text) != choices.end())
        return {};
      std::string all;
      for (const auto& choice : choices)
        all += (all.empty() ? "" : &choice == &choices.back() ? " or " : ", ") + choice;
      return "must be " + all + ", found `" + text + "`";
    },
    "", name);
}

std::string choices_of(CLI::Option& option) {
  std::string choices;
  try {
    for (int i = 0;; ++i)
      choices += option.get_validator(i)->get_name();
  } catch (const CLI::OptionNotFound&) { // there is no other
  }
  return choices;
}

} // namespace troupe::cli
