// Values that people write on the command line and in configuration files: sizes with units, whole numbers, lists. Pure
// functions, and the same as checks of CLI11's options.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class Validator;
}

namespace troupe::cli {

/// Bytes of "2GiB", "1.5 GB", "4096": KiB, MiB, GiB, TiB count in powers of 1024, KB, MB, GB, TB in powers of 1000.
/// What is left of a byte is dropped. Throws failure(bad_request), also where the result exceeds 2^63 - 1.
std::size_t parse_size(std::string_view text);

/// An integer from `low` to `high` and nothing beside it. Throws failure(bad_request).
std::int64_t parse_integer(std::string_view text, std::int64_t low, std::int64_t high);

/// Integers between commas or white space. Throws failure(bad_request).
std::vector<std::int64_t> parse_integers(std::string_view text, std::int64_t low, std::int64_t high);

/// Turns a size into plain bytes.
CLI::Validator size_value();

CLI::Validator integer_between(std::int64_t low, std::int64_t high);

CLI::Validator number_between(double low, double high);

CLI::Validator one_of(std::vector<std::string> choices);

} // namespace troupe::cli
