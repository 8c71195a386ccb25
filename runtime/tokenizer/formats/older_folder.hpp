// Finds the tokenizer of a folder that has no tokenizer.json: a SentencePiece model or a file of tiktoken, with what
// tokenizer_config.json adds. Any thread.
#pragma once

#include "runtime/support/types.hpp"

#include <filesystem>
#include <optional>
#include <string>

namespace troupe::tokenization {

struct older_tokenizer {
  std::string json; // as a tokenizer.json
  std::string file; // for messages
  std::optional<token_id> bos, eos, unk;
};

/// Nothing if the folder has no such file. Throws failure(bad_file | unsupported) naming the file.
std::optional<older_tokenizer> find_older_tokenizer(const std::filesystem::path& folder);

} // namespace troupe::tokenization
