// Reads SentencePiece's model files (`tokenizer.model`): BPE and Unigram models. Pure functions; files are untrusted.
// Format: https://github.com/google/sentencepiece/blob/master/src/sentencepiece_model.proto
#pragma once

#include "runtime/tokenizer/formats/pieces.hpp"

#include <string>
#include <string_view>

namespace troupe::tokenization {

/// Equal to SentencePiece except for BPE vocabularies with characters that occur only within tokens. Control tokens are
/// found in texts, as chat templates need it; a text begins anew behind one. Throws failure(bad_file | unsupported)
/// naming the `file`, whose content is `bytes`.
translated_file translate_sentencepiece(std::string_view bytes, const std::string& file);

} // namespace troupe::tokenization
