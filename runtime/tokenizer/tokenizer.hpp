// The tokenizer of a Hugging Face checkpoint (`tokenizer.json`): text to token ids and back, exactly as the
// `tokenizers` library does it for BPE models. Built once per checkpoint and then immutable, so that every actor and
// thread may share it; `stream_decoder` is the state of one text being streamed and belongs to whoever streams it.
#pragma once

#include "runtime/support/error.hpp"
#include "runtime/support/types.hpp"

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

class tokenizer {
public:
  struct parts;

  /// Reads `<folder>/tokenizer.json`, and the names of the BOS, EOS and UNK tokens from `tokenizer_config.json` where
  /// that is present. Throws failure(not_found | bad_file | unsupported) naming the file and the part at fault.
  static std::shared_ptr<const tokenizer> load(const std::filesystem::path& folder);

  /// The same from a text in memory; `name` stands for the file in messages.
  struct named_tokens {
    std::optional<token_id> bos, eos, unk;
  };
  static std::shared_ptr<const tokenizer> parse(std::string_view tokenizer_json, std::string name,
                                                const named_tokens& special = {});

  explicit tokenizer(std::unique_ptr<const parts> parts);
  ~tokenizer();

  /// The ids of `text`, with what the post-processor adds (BOS, ...) if `add_special_tokens`. Special tokens written
  /// out in the text are recognised either way. O(n log n). Truncation and padding that the file asks for are not
  /// applied, as in transformers. Throws failure(bad_request) where the text is not UTF-8, or where the file makes many
  /// times more of it (growth.hpp).
  std::vector<token_id> encode(std::string_view text, bool add_special_tokens) const;

  /// The text of `ids`; ids outside the vocabulary are skipped. Always valid UTF-8: bytes that are not become U+FFFD.
  /// Throws failure(bad_request) where that is a text of more than 256 MiB.
  std::string decode(std::span<const token_id> ids, bool skip_special_tokens) const;

  /// The most bytes of a text that one token can stand for, so that a text of n bytes has at least n / that many tokens;
  /// 0 where there is no such bound, because texts lose parts on the way (space that is stripped, for one).
  std::size_t most_bytes_per_token() const;

  /// The highest id + 1, added tokens included.
  std::size_t vocab_size() const;
  std::optional<token_id> id_of(std::string_view token) const;
  /// As the vocabulary spells it ("Ġthe", "<0x0A>"); empty for an id that has no token.
  std::string_view token(token_id id) const;
  /// The raw bytes that the token stands for (" the", "\n"), which need not be whole UTF-8 characters. What depends on
  /// neighbours (a space dropped at the start of a text) is not applied.
  std::string token_bytes(token_id id) const;
  /// Is it left out by `skip_special_tokens`?
  bool is_special(token_id id) const;

  /// As named by tokenizer_config.json or to `parse`; nothing where that names none or one not in the vocabulary.
  std::optional<token_id> bos() const;
  std::optional<token_id> eos() const;
  std::optional<token_id> unk() const;

private:
  friend class stream_decoder;
  std::unique_ptr<const parts> parts_;
};

/// Incremental detokenisation. The pieces that push() returns, followed by finish(), concatenate to exactly
/// `decode(all ids)`, and each is valid UTF-8: what could still change (half a character, a run of byte tokens that may
/// turn out not to be UTF-8) is held back. Amortised O(1) per token.
class stream_decoder {
public:
  stream_decoder(std::shared_ptr<const tokenizer> tokenizer, bool skip_special_tokens);
  stream_decoder(stream_decoder&&) noexcept;
  stream_decoder& operator=(stream_decoder&&) noexcept;
  ~stream_decoder();

  /// The text that is certain after this token; often one word, sometimes nothing.
  std::string push(token_id id);
  /// What was held back. The decoder is at its end afterwards: pushing more is a bug.
  std::string finish();

private:
  struct state;
  std::unique_ptr<state> state_;
};

} // namespace troupe
