// Translates between GGUF files and models: architecture keys to the decoder's configuration, tensors to the names,
// shapes and row orders of Hugging Face's checkpoints, the embedded vocabulary to a tokenizer; and back, for exports.
#pragma once

#include "runtime/chat/chat_template.hpp"
#include "runtime/checkpoint/gguf_file.hpp"
#include "runtime/checkpoint/gguf_writer.hpp"
#include "runtime/model/model_config.hpp"
#include "runtime/support/json/json.hpp"
#include "runtime/tokenizer/formats/pieces.hpp"
#include "runtime/tokenizer/tokenizer.hpp"

#include <array>
#include <memory>
#include <optional>
#include <utility>

namespace troupe {

/// Values of `tokenizer.ggml.token_type`.
using gguf_token_kind = tokenization::piece_kind;

/// Special tokens that templates name, and their keys.
inline constexpr std::array<std::pair<const char*, const char*>, 7> gguf_special_tokens{
  {{"bos_token", "tokenizer.ggml.bos_token_id"},
   {"eos_token", "tokenizer.ggml.eos_token_id"},
   {"unk_token", "tokenizer.ggml.unknown_token_id"},
   {"sep_token", "tokenizer.ggml.seperator_token_id"}, // as files spell it
   {"pad_token", "tokenizer.ggml.padding_token_id"},
   {"cls_token", "tokenizer.ggml.cls_token_id"},
   {"mask_token", "tokenizer.ggml.mask_token_id"}}};

/// For the architectures of families (runtime/model/families). Throws failure(bad_file | unsupported)
/// naming the file and the key or tensor.
model_config parse_gguf_config(const gguf_file& file);

/// The ends of answers that keys give, or names of tokens (answer_ends.hpp), and the defaults of sampling.
generation_defaults parse_gguf_generation(const gguf_file& file);

/// The key of a default in sampling_table.hpp; nothing for those that GGUF lacks.
std::optional<std::string> gguf_sampling_key(std::string_view field);

/// Models `gpt2` (BPE that splits texts as `tokenizer.ggml.pre` says, gguf_words.hpp), `llama` (SentencePiece BPE,
/// whose merges follow from scores: two neighbours whose joined text is a token may merge, highest score first; exact
/// except for vocabularies with characters that only occur within pieces), `t5` (Unigram), `bert` (WordPiece) and
/// `gemma4`. Throws failure(bad_file | unsupported) naming the `file` and the key.
std::shared_ptr<const tokenizer> make_gguf_tokenizer(const gguf_metadata& metadata, const std::string& file);
inline std::shared_ptr<const tokenizer> make_gguf_tokenizer(const gguf_file& file) {
  return make_gguf_tokenizer(file.metadata(), file.name());
}

/// GGUF's name (`tokenizer.ggml.pre`) for the way a tokenizer.json of byte-level BPE splits texts into words, given its
/// `pre_tokenizer` and `ignore_merges`; nothing if GGUF has none. A name that differs only in `ignore_merges` is
/// accepted, as most vocabularies have a merge for every token.
std::optional<std::string> gguf_pre_tokenizer(const json::value& pre_tokenizer, bool ignore_merges);

/// The reverse translation: adds the metadata of a model's configuration. Throws failure(unsupported) naming the part
/// that GGUF cannot express.
void describe_model(gguf_writer& to, const model_config& config, const std::string& name);

/// Describes the tokenizer, ends, sampling and chat template of a folder of Hugging Face's files. A tokenizer that GGUF
/// cannot describe is written whole into a key of our own; a line for the log says where other programs then have none.
std::vector<std::string> describe_words(gguf_writer& to, const std::filesystem::path& folder,
                                        const model_config& config, const generation_defaults& generation,
                                        const tokenizer& tokens, const std::string& model);

/// The key of a tokenizer.json, which then counts instead of what other keys say.
inline constexpr std::string_view exact_tokenizer_key = "troupe.tokenizer";

/// `tokenizer.chat_template`, or nothing.
std::optional<chat_template> make_gguf_chat_template(const gguf_file& file, const std::string& instead = {});

} // namespace troupe
