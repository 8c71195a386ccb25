// The names that GGUF files have for the ways in which byte-level BPE tokenizers split texts into words
// (`tokenizer.ggml.pre`), as llama.cpp lists them. Immutable tables; any thread.
#pragma once

#include <span>
#include <string_view>
#include <vector>

namespace troupe {

struct word_rule {
  std::string_view name = {};
  std::vector<std::string_view> steps = {}; // expressions, one after the other
  bool ignore_merges = false;               // words that are tokens skip merging
  bool nfc = false;                         // normalises to NFC first
  bool bos = false;                         // default of add_bos_token
  bool sep = false;                         // default of add_sep_token
  bool characters = false;                  // words are not spelled in bytes; a character without token becomes bytes
  bool escapes_spaces = false;              // to U+2581
};

std::span<const word_rule> word_rules();

} // namespace troupe
