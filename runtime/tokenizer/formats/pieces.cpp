#include "runtime/tokenizer/formats/pieces.hpp"

#include "runtime/support/json/json_text.hpp"
#include "runtime/support/text/base64.hpp"
#include "runtime/support/text/utf8.hpp"
#include "runtime/tokenizer/models/token_model.hpp"

#include <algorithm>
#include <stdexcept>
#include <unordered_map>

namespace troupe::tokenization {

namespace {

constexpr std::string_view mark = "\u2581";

/// Joins the members of a list or object.
class json_list {
public:
  void add(const std::string& item) {
    if (!text_.empty())
      text_ += ',';
    text_ += item;
  }
  std::string list() const { return "[" + text_ + "]"; }
  std::string object() const { return "{" + text_ + "}"; }

private:
  std::string text_;
};

const char* boolean(bool b) { return b ? "true" : "false"; }

/// Normal tokens, those with the highest score first; others cannot come from merging.
std::vector<std::size_t> by_score(const piece_list& pieces) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < pieces.size(); ++i)
    if (pieces.kinds[i] == piece_kind::normal)
      order.push_back(i);
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return pieces.scores[a] > pieces.scores[b]; });
  return order;
}

} // namespace

std::optional<token_id> piece_list::find(piece_kind kind) const {
  const auto found = std::ranges::find(kinds, kind);
  return found == kinds.end() ? std::nullopt : std::optional(static_cast<token_id>(found - kinds.begin()));
}

std::optional<token_id> piece_list::find(std::string_view text) const {
  const auto found = std::ranges::find(texts, text);
  return found == texts.end() ? std::nullopt : std::optional(static_cast<token_id>(found - texts.begin()));
}

std::string vocab_json(const piece_list& pieces, const std::function<std::string(std::string_view)>& spelling) {
  json_list members;
  for (std::size_t i = 0; i < pieces.size(); ++i)
    members.add(json_text(spelling ? spelling(pieces.texts[i]) : std::string(pieces.texts[i])) + ":" +
                std::to_string(i));
  return members.object();
}

std::string added_json(const piece_list& pieces, symbol_search search, const std::vector<added_piece>& others) {
  json_list list;
  const auto add = [&](const added_piece& p) {
    list.add(R"({"id":)" + std::to_string(p.id) + R"(,"content":)" + json_text(p.content) + R"(,"single_word":)" +
             boolean(p.single_word) + R"(,"lstrip":)" + boolean(p.left_strip) + R"(,"rstrip":)" +
             boolean(p.right_strip) + R"(,"normalized":)" + boolean(p.normalized) + R"(,"special":)" +
             boolean(p.special) + "}");
  };
  auto other = others.begin();
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const auto id = static_cast<token_id>(i);
    const auto kind = pieces.kinds[i];
    const bool special = kind == piece_kind::control || kind == piece_kind::unknown;
    if (other != others.end() && other->id == id)
      add(*other++);
    else if ((special || (kind == piece_kind::user_defined && search != symbol_search::model)) &&
             !pieces.texts[i].empty())
      add({.id = id,
           .content = std::string(pieces.texts[i]),
           .normalized = search == symbol_search::normalized_text && !special,
           .special = special});
  }
  std::for_each(other, others.end(), add);
  return list.list();
}

std::string around_json(const piece_list& pieces, std::span<const token_id> before, std::span<const token_id> after) {
  json_list single, special;
  std::vector<token_id> known;
  const auto token = [&](token_id id) {
    const auto name = json_text(pieces.texts[static_cast<std::size_t>(id)]);
    if (std::ranges::find(known, id) == known.end())
      special.add(name + R"(:{"id":)" + name + R"(,"ids":[)" + std::to_string(id) + R"(],"tokens":[)" + name + "]}");
    known.push_back(id);
    single.add(R"({"SpecialToken":{"id":)" + name + R"(,"type_id":0}})");
  };
  std::ranges::for_each(before, token);
  single.add(R"({"Sequence":{"id":"A","type_id":0}})");
  std::ranges::for_each(after, token);
  return R"({"type":"TemplateProcessing","single":)" + single.list() + R"(,"pair":)" + single.list() +
    R"(,"special_tokens":)" + special.object() + "}";
}

std::string scored_bpe_json(const piece_list& pieces, token_id unknown, bool byte_fallback) {
  std::unordered_map<std::string_view, std::size_t> known;
  for (std::size_t i = 0; i < pieces.size(); ++i)
    if (pieces.kinds[i] == piece_kind::normal)
      known.emplace(pieces.texts[i], i);
  std::vector<ranked_merge> merges;
  std::size_t rank = 0;
  const auto order = by_score(pieces);
  for (std::size_t at = 0; at < order.size(); ++at) {
    const auto piece = pieces.texts[order[at]];
    if (piece.size() > longest_piece)
      throw std::invalid_argument("holds a token of " + std::to_string(piece.size()) + " bytes at index " +
                                  std::to_string(order[at]) + ", at most " + std::to_string(longest_piece) +
                                  " are supported");
    if (at > 0 && pieces.scores[order[at]] != pieces.scores[order[at - 1]])
      ++rank;
    for (std::size_t cut = 0; cut < piece.size();) {
      next_char(piece, cut);
      const auto left = piece.substr(0, cut), right = piece.substr(cut);
      if (!right.empty() && known.contains(left) && known.contains(right))
        merges.push_back({left, right, rank});
    }
  }
  return R"({"type":"BPE","fuse_unk":true,"byte_fallback":)" + std::string(boolean(byte_fallback)) +
    R"(,"unk_token":)" + json_text(pieces.texts[static_cast<std::size_t>(unknown)]) + R"(,"vocab":)" +
    vocab_json(pieces) + R"(,"merges":)" + merges_json(merges) + "}";
}

std::string unigram_json(const piece_list& pieces, token_id unknown, bool byte_fallback) {
  json_list vocab;
  for (std::size_t i = 0; i < pieces.size(); ++i)
    vocab.add("[" + json_text(pieces.texts[i]) + "," +
              (pieces.kinds[i] == piece_kind::normal           ? json_number(pieces.scores[i])
                 : pieces.kinds[i] == piece_kind::user_defined ? "true"
                                                               : "null") +
              "]");
  return R"({"type":"Unigram","single_precision":true,"byte_fallback":)" + std::string(boolean(byte_fallback)) +
    R"(,"unk_id":)" + std::to_string(unknown) + R"(,"vocab":)" + vocab.list() + "}";
}

std::string preparation_json(const preparation& how, const piece_list& pieces) {
  json_list kept;
  for (std::size_t i = 0; i < pieces.size(); ++i)
    if (pieces.kinds[i] == piece_kind::user_defined)
      kept.add(json_text(pieces.texts[i]));
  return R"({"type":"SentencePiece","precompiled_charsmap":)" +
    (how.charsmap.empty() ? "null" : json_text(encode_base64(how.charsmap))) + R"(,"add_dummy_prefix":)" +
    boolean(how.dummy_prefix) + R"(,"remove_extra_whitespaces":)" + boolean(how.remove_extra_spaces) +
    R"(,"escape_whitespaces":)" + boolean(how.escape_spaces) + R"(,"kept":)" + kept.list() + "}";
}

std::string pieces_decoder_json(const preparation& how) {
  return R"({"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":)" + json_text(mark) +
    R"(},"content":" "},{"type":"ByteFallback"},{"type":"Fuse"})" +
    (how.remove_extra_spaces ? R"(,{"type":"Strip","content":" ","start":1048576,"stop":0})"
       : how.dummy_prefix    ? R"(,{"type":"Strip","content":" ","start":1,"stop":0})"
                             : "") +
    "]}";
}

std::string merges_json(const std::vector<ranked_merge>& merges) {
  constexpr std::size_t most_bytes = std::size_t(1) << 30; // real vocabularies need a hundredth
  std::string list = "[";
  for (const auto& [left, right, rank] : merges) {
    if (list.size() > 1)
      list += ',';
    list += "[" + json_text(left) + "," + json_text(right) + "," + std::to_string(rank) + "]";
    if (list.size() > most_bytes)
      throw std::invalid_argument("has too many tokens made of other tokens");
  }
  return list + "]";
}

} // namespace troupe::tokenization
