#include "runtime/import/model_names.hpp"

#include "runtime/checkpoint/gguf_file.hpp"

#include <algorithm>

namespace troupe {

namespace {

constexpr std::string_view gguf_extension = ".gguf";

char capital(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; }

bool is_numeral(char c) { return c >= '0' && c <= '9'; }

std::string_view base_of(std::string_view file) { return file.substr(file.find_last_of('/') + 1); }

/// Whether a word, in capitals, names a format.
bool is_format(std::string_view word) {
  for (const std::string_view whole : {"F16", "F32", "BF16", "FP16", "FP32", "MXFP4", "NVFP4"})
    if (word == whole || (word.starts_with(whole) && word[whole.size()] == '_'))
      return true;
  for (const std::string_view start : {"IQ", "TQ", "Q"})
    if (word.starts_with(start))
      return word.size() > start.size() + 1 && is_numeral(word[start.size()]) && word[start.size() + 1] == '_';
  return false;
}

} // namespace

bool same_name(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](char x, char y) { return capital(x) == capital(y); });
}

bool is_gguf_name(std::string_view file) {
  return file.size() > gguf_extension.size() &&
    same_name(file.substr(file.size() - gguf_extension.size()), gguf_extension);
}

bool may_be_model_name(std::string_view file) {
  if (!is_gguf_name(file))
    return false;
  const auto base = base_of(file);
  const auto part = gguf_part_name::of(std::string(base));
  return (!part || part->number == 1) && base.find("mmproj") == base.npos && base.find("imatrix") == base.npos &&
    !base.starts_with("mtp-");
}

std::string stem_of_gguf(std::string_view file) {
  const auto base = std::string(base_of(file));
  if (const auto part = gguf_part_name::of(base))
    return part->stem;
  return is_gguf_name(base) ? base.substr(0, base.size() - gguf_extension.size()) : base;
}

std::optional<std::string> format_in_name(std::string_view file) {
  auto stem = stem_of_gguf(file);
  std::ranges::transform(stem, stem.begin(), capital);
  // From the end, as what stands in front is the model's name.
  for (auto end = stem.size();;) {
    const auto separator = end == 0 ? stem.npos : stem.find_last_of("-.", end - 1);
    const auto start = separator == stem.npos ? 0 : separator + 1;
    const auto word = std::string_view(stem).substr(start, end - start);
    if (is_format(word)) {
      constexpr std::string_view dynamic = "UD-"; // Unsloth's own mixtures
      const bool mixed = std::string_view(stem).substr(0, start).ends_with(dynamic);
      return (mixed ? std::string(dynamic) : std::string()) + std::string(word);
    }
    if (separator == stem.npos)
      return std::nullopt;
    end = separator;
  }
}

} // namespace troupe
