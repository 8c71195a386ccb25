// Vocabularies that are lists of tokens with kinds and scores, as SentencePiece models and GGUF files hold them,
// written as parts of a tokenizer.json. Views into the file.
#pragma once

#include "runtime/support/types.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::tokenization {

/// With the numbers of both formats.
enum class piece_kind : std::int32_t { normal = 1, unknown, control, user_defined, unused, byte };

struct piece_list {
  std::vector<std::string_view> texts;
  std::vector<piece_kind> kinds;
  std::vector<float> scores; // finite; empty if the tokens have none

  std::size_t size() const { return texts.size(); }
  bool is(token_id id, piece_kind kind) const { return kinds[static_cast<std::size_t>(id)] == kind; }
  /// The first of that kind.
  std::optional<token_id> find(piece_kind kind) const;
  std::optional<token_id> find(std::string_view text) const;
};

/// `{"text": id}`; `spelling` changes the texts.
std::string vocab_json(const piece_list& pieces, const std::function<std::string(std::string_view)>& spelling = {});

/// A token that is found in texts, with the flags of `added_tokens`.
struct added_piece {
  token_id id = 0;
  std::string content;
  bool single_word = false, left_strip = false, right_strip = false, normalized = false, special = false;
};

/// Who finds user-defined tokens: added tokens in the text or in the normalised text, or the model.
enum class symbol_search : std::uint8_t { text, normalized_text, model };

/// Control tokens and the unknown one, special; user-defined ones if they are added tokens; and `others`, in the order
/// of their ids, which replace pieces of the same id.
std::string added_json(const piece_list& pieces, symbol_search search, const std::vector<added_piece>& others = {});

/// The tokens that go before and after a text.
std::string around_json(const piece_list& pieces, std::span<const token_id> before, std::span<const token_id> after);

/// A BPE model in which neighbours merge if their joined text is a normal token, the highest score first, as in
/// SentencePiece. `unknown`: for characters without a token; these become bytes if the tokens of all bytes are there.
/// Throws std::invalid_argument if a token is too long.
std::string scored_bpe_json(const piece_list& pieces, token_id unknown, bool byte_fallback);

/// A Unigram model of the normal tokens and the user-defined ones.
std::string unigram_json(const piece_list& pieces, token_id unknown, bool byte_fallback);

/// SentencePiece's treatment of a text before the model; `charsmap` may be empty.
struct preparation {
  std::string_view charsmap = {};
  bool dummy_prefix = true;
  bool remove_extra_spaces = true;
  bool escape_spaces = true;
};
std::string preparation_json(const preparation& how, const piece_list& pieces);
std::string pieces_decoder_json(const preparation& how);

/// A merge of two tokens; merges of one rank belong to the same token.
struct ranked_merge {
  std::string_view left, right;
  std::size_t rank;
};

std::string merges_json(const std::vector<ranked_merge>& merges);

/// A file of another format as a tokenizer.json: all but its `added_tokens` and `post_processor`.
struct translated_file {
  std::string members; // of the JSON object
  piece_list pieces;   // views into the file, or into `texts`
  std::vector<std::string> texts;
  std::optional<token_id> bos, eos, unk;
  bool add_bos = false; // unless tokenizer_config.json says otherwise
  symbol_search search = symbol_search::text;
};

} // namespace troupe::tokenization
