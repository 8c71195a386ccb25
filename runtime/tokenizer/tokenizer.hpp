// The tokenizer of a Hugging Face checkpoint (`tokenizer.json`): text to token ids and back, exactly as the
// `tokenizers` library does for BPE, Unigram and WordPiece models. Immutable, so that all actors and threads share it;
// a `stream_decoder` holds the state of one streamed text and belongs to one actor.
#pragma once

#include "runtime/support/error.hpp"
#include "runtime/support/types.hpp"

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// Two texts as one prompt.
struct token_pair {
  std::vector<token_id> ids;
  std::int32_t second = 0; // where tokens begin to be of the second text's type; 0: the tokenizer has no types
};

class tokenizer {
public:
  struct parts;

  /// Reads `<folder>/tokenizer.json`, or a SentencePiece model or a file of tiktoken if there is none, and the names of
  /// the BOS, EOS and UNK tokens from `tokenizer_config.json`, then from `special_tokens_map.json`. Throws
  /// failure(not_found | bad_file | unsupported) naming the file and the part at fault.
  static std::shared_ptr<const tokenizer> load(const std::filesystem::path& folder);

  /// Reads a tokenizer from memory; `name` stands for the file in messages.
  struct named_tokens {
    std::optional<token_id> bos, eos, unk;
  };
  static std::shared_ptr<const tokenizer> parse(std::string_view tokenizer_json, std::string name,
                                                const named_tokens& special = {});

  explicit tokenizer(std::unique_ptr<const parts> parts);
  ~tokenizer();

  /// The ids of `text`. `add_special_tokens` applies the post-processor (BOS, ...); special tokens written out in the
  /// text are recognised either way. O(n log n). Truncation and padding of the file are not applied, as in
  /// transformers. Throws failure(bad_request) if the text is not UTF-8, or if the tokenizer enlarges it beyond the
  /// limits of growth.hpp.
  std::vector<token_id> encode(std::string_view text, bool add_special_tokens) const;

  /// The ids of as much of the text as makes `most` ids with the special tokens around it, which are kept. Throws as
  /// `encode`.
  std::vector<token_id> encode_cut(std::string_view text, std::size_t most) const;

  /// The ids of a text in which special tokens, and `marks`, are text as any other; without special tokens around it.
  /// Throws as `encode`.
  std::vector<token_id> encode_plain(std::string_view text, std::span<const token_id> marks) const;

  /// Parts of a text that write special tokens out, in order; also within others.
  std::vector<std::string_view> specials_in(std::string_view text) const;
  /// As `encode`, but what begins at places of `plain_at`, which are sorted, is text as any other.
  std::vector<token_id> encode_around(std::string_view text, bool add_special_tokens,
                                      std::span<const std::size_t> plain_at) const;

  /// A query and a document, as rerankers read them: with the special tokens that go around and between two texts. Of
  /// the second no more than `most_second` tokens are taken. Throws as `encode`.
  token_pair encode_pair(std::string_view first, std::string_view second, std::size_t most_second) const;

  /// The text of `ids`, skipping ids outside the vocabulary. Always valid UTF-8: invalid bytes become U+FFFD. Throws
  /// failure(bad_request) beyond 256 MiB of text.
  std::string decode(std::span<const token_id> ids, bool skip_special_tokens) const;

  /// The most bytes of text that one token can represent, which bounds the tokens of a text from below. 0 if unbounded,
  /// because encoding drops parts of texts (stripped space, for one).
  std::size_t most_bytes_per_token() const;

  /// The highest id + 1, added tokens included.
  std::size_t vocab_size() const;
  std::optional<token_id> id_of(std::string_view token) const;
  /// The spelling in the vocabulary ("Ġthe", "<0x0A>"); empty for an unused id.
  std::string_view token(token_id id) const;
  /// The raw bytes of the token (" the", "\n"), possibly parts of UTF-8 characters. Rules that depend on neighbours (a
  /// space dropped at the start of a text) are not applied.
  std::string token_bytes(token_id id) const;
  /// Whether `skip_special_tokens` leaves it out.
  bool is_special(token_id id) const;

  /// A sentence for the log on what of its file does not hold; empty if all does.
  std::string remark() const;

  /// From tokenizer_config.json or `parse`; nothing if unnamed or not in the vocabulary.
  std::optional<token_id> bos() const;
  std::optional<token_id> eos() const;
  std::optional<token_id> unk() const;

private:
  friend class stream_decoder;
  /// Without what the post-processor adds. `plain`: added tokens that are not looked for; null: none. `plain_at`: where
  /// none is, as far as they match the original text.
  std::vector<token_id> bare_ids(std::string_view text, const std::function<bool(token_id)>& plain = nullptr,
                                 std::span<const std::size_t> plain_at = {}) const;

  std::unique_ptr<const parts> parts_;
};

/// Incremental detokenisation. The pieces that push() returns, followed by finish(), concatenate to exactly `decode(all
/// ids)`, and each is valid UTF-8: text that later tokens can change (half a character, an unfinished run of byte
/// tokens) is held back. Amortised O(1) per token.
class stream_decoder {
public:
  /// `shown`: special tokens that are not skipped, sorted.
  stream_decoder(std::shared_ptr<const tokenizer> tokenizer, bool skip_special_tokens,
                 std::vector<token_id> shown = {});
  stream_decoder(stream_decoder&&) noexcept;
  stream_decoder& operator=(stream_decoder&&) noexcept;
  ~stream_decoder();

  /// The text that is final after this token: often one word, sometimes nothing.
  std::string push(token_id id);
  /// The text held back. No more tokens may be pushed afterwards.
  std::string finish();

private:
  struct state;
  std::unique_ptr<state> state_;
};

} // namespace troupe
