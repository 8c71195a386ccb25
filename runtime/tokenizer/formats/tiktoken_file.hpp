// Reads tiktoken's files: lines of a token in base64 and its rank, which is its id. They hold neither the expression
// that splits texts nor the special tokens; these follow from the family. Pure functions; files are untrusted.
#pragma once

#include "runtime/tokenizer/formats/pieces.hpp"

#include <string>
#include <string_view>

namespace troupe::tokenization {

/// Whether a file begins as one of tiktoken.
bool begins_as_tiktoken(std::string_view bytes);

/// `family`: the file's name without extension ("cl100k_base"), or the `model_type` of config.json ("llama").
/// `others`: special tokens beyond the family's. Throws failure(bad_file | unsupported) naming the `file`, whose
/// content is `bytes`.
translated_file translate_tiktoken(std::string_view bytes, const std::string& file, const std::string& family,
                                   const std::vector<added_piece>& others);

} // namespace troupe::tokenization
