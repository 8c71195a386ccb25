// Values on the command line and in configuration files: sizes with units, integers, lists. Pure functions, and the
// same as validators for CLI11.
#pragma once

#include "runtime/support/text/integer_text.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace CLI {
class App;
class Option;
class Validator;
} // namespace CLI

namespace troupe::cli {

/// The bytes of "2GiB", "1.5 GB" or "4096": KiB to TiB are powers of 1024, KB to TB powers of 1000. Fractions of a byte
/// are dropped. Throws failure(bad_request), also if the result exceeds 2^63 - 1, and for a number of less than 1024 without
/// a unit, which somebody forgot.
std::size_t parse_size(std::string_view text);

/// The microseconds of "80ms", "0.2s" or "80" (milliseconds): from 100 us to 10 minutes. Throws failure(bad_request).
std::chrono::microseconds parse_time(std::string_view text);

/// "DIR" or "DIR:SIZE"; 0 without a size. A colon that no size follows belongs to the folder. Throws
/// failure(bad_request) for an empty folder and for a size of 0.
std::pair<std::string, std::size_t> parse_folder_and_size(const std::string& text);

/// Transforms a size into plain bytes.
CLI::Validator size_value();

/// Transforms `word` into 0; else an integer from `low` to `high`.
CLI::Validator word_or_integer(std::string word, std::int64_t low, std::int64_t high);

CLI::Validator integer_between(std::int64_t low, std::int64_t high);

/// An option whose value is the name of a file.
CLI::Option* add_file(CLI::App& to, const std::string& flag, std::string& file, const std::string& help);

/// An option for an integer from `low` to `high`, whose help shows the default.
CLI::Option* add_integer(CLI::App& to, const std::string& flag, int& value, int low, int high, const std::string& help);

CLI::Validator number_between(double low, double high);

CLI::Validator one_of(std::vector<std::string> choices);

/// The choices of an option that one_of checks, one on each line; empty for other options.
std::string choices_of(CLI::Option& option);

} // namespace troupe::cli
