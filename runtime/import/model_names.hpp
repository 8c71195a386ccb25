// What names of GGUF files say: the format of the weights, and whether a file is a model at all. For folders and
// repositories with several files, of which users name one by its format ("ORG/NAME:Q4_K_M"). Pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace troupe {

/// The extension is .gguf, in small letters or capitals.
bool is_gguf_name(std::string_view file);

/// A GGUF file of this name, with or without folders, may be a model or its first part: neither a later part nor what
/// publishers put beside models (encoders of images, importance matrices, heads that guess ahead).
bool may_be_model_name(std::string_view file);

/// "Q4_K_M" for "x/model-q4_k_m.gguf", "UD-Q4_K_XL" for "model-UD-Q4_K_XL-00001-of-00002.gguf"; nothing for names that
/// state no format.
std::optional<std::string> format_in_name(std::string_view file);

/// The name without folders, ".gguf" and the number of the part.
std::string stem_of_gguf(std::string_view file);

/// Compares names without regard to ASCII capitals.
bool same_name(std::string_view a, std::string_view b);

} // namespace troupe
