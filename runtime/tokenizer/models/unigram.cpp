#include "runtime/tokenizer/models/unigram.hpp"

#include "runtime/support/meter.hpp"
#include "runtime/support/text/utf8.hpp"

#include <algorithm>

namespace troupe::tokenization {

namespace {

/// How much worse an unknown character is than the worst token.
constexpr double unknown_penalty = 10;

} // namespace

unigram::unigram(const json::reader& model) {
  byte_fallback_ = model.boolean("byte_fallback", false);
  single_ = model.boolean("single_precision", false);
  const auto vocab = model.at("vocab");
  const auto list = vocab.array();
  if (list.size() > highest_id)
    vocab.refuse("has " + std::to_string(list.size()) + " tokens, at most " + std::to_string(highest_id) +
                 " are supported");
  const auto refuse = [&](std::size_t i, const std::string& what) {
    vocab.refuse("entry " + std::to_string(i) + " " + what);
  };
  struct piece {
    std::string_view text;
    double score = 0;
    bool matched = true, preferred = false;
  };
  std::vector<piece> pieces;
  pieces.reserve(list.size());
  std::size_t bytes = 0;
  for (json::value item : list) {
    const auto i = pieces.size();
    piece p;
    json::array pair;
    if (item.get_array().get(pair) || pair.size() != 2 || pair.at(0).get_string().get(p.text))
      refuse(i, "must be a token and its score");
    const json::value score = pair.at(1);
    if (score.is_null())
      p.matched = false;
    else if (bool is = false; !score.get_bool().get(is) && is)
      p.preferred = true;
    else if (score.get_double().get(p.score))
      refuse(i, "must have a number as its score");
    if (!is_utf8(p.text))
      refuse(i, "is not valid Unicode");
    if (p.text.size() > longest_piece)
      refuse(i,
             "has " + std::to_string(p.text.size()) + " bytes, at most " + std::to_string(longest_piece) +
               " are supported");
    bytes += p.text.size();
    pieces.push_back(p);
  }
  words_.reserve(pieces.size(), bytes, pieces.size());
  scores_.resize(pieces.size());
  std::vector<trie::entry> entries;
  double worst = 0, best = 0; // best: at least 0, as SentencePiece has it
  bool any = false;           // normal tokens
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    words_.add(pieces[i].text, static_cast<token_id>(i));
    scores_[i] = single_ ? static_cast<double>(static_cast<float>(pieces[i].score)) : pieces[i].score;
    if (!pieces[i].matched)
      continue;
    entries.push_back({pieces[i].text, static_cast<std::int32_t>(i)});
    if (pieces[i].preferred)
      continue;
    worst = any ? std::min(worst, scores_[i]) : scores_[i];
    best = std::max(best, scores_[i]);
    any = true;
  }
  for (std::size_t i = 0; i < pieces.size(); ++i)
    if (pieces[i].preferred)
      scores_[i] = static_cast<double>(static_cast<float>(pieces[i].text.size()) * static_cast<float>(best)) - 0.1;
  pieces_ = trie(std::move(entries));
  unknown_score_ = worst - unknown_penalty;
  if (single_)
    unknown_score_ = static_cast<double>(static_cast<float>(unknown_score_));
  if (const auto unk = model.child("unk_id")) {
    unk_id_ = static_cast<token_id>(unk->integer(0, highest_id));
    if (!words_.has(unk_id_))
      unk->refuse("is " + std::to_string(unk_id_) + ", which is not the id of a token");
  }
  for (int byte = 0; byte < 256; ++byte)
    byte_tokens_[static_cast<std::size_t>(byte)] = words_.id_of(byte_token_name(byte)).value_or(-1);
}

std::size_t unigram::most_bytes_per_token(bool) const {
  // Neighbouring unknown characters become one token, but not as bytes.
  const bool each_byte = byte_fallback_ && std::ranges::all_of(byte_tokens_, [](token_id id) { return id >= 0; });
  return each_byte ? std::max<std::size_t>(words_.longest(), 1) : 0;
}

void unigram::encode_word(std::string_view word, word_scratch& scratch, std::vector<token_id>& ids) const {
  if (word.empty())
    return;
  auto& ends = scratch.ends;
  ends.assign(word.size() + 1, {0, -1, -1});
  const auto offer = [&](std::size_t begin, std::size_t end, token_id id, double score) {
    auto& to = ends[end];
    double sum = score + ends[begin].score;
    if (single_)
      sum = static_cast<double>(static_cast<float>(sum));
    if (to.begin < 0 || sum > to.score)
      to = {sum, static_cast<std::int32_t>(begin), id};
  };
  for (std::size_t begin = 0; begin < word.size();) {
    std::size_t end = begin;
    next_char(word, end);
    meter::charge(1);
    bool alone = false; // the character is a token
    pieces_.prefixes(word.substr(begin), [&](std::size_t length, token_id id) {
      alone |= length == end - begin;
      offer(begin, begin + length, id, scores_[static_cast<std::size_t>(id)]);
    });
    if (!alone)
      offer(begin, end, -1, unknown_score_);
    begin = end;
  }
  // Tokens end where characters do, as both are UTF-8; from the last to the first:
  const auto first = static_cast<std::ptrdiff_t>(ids.size());
  std::size_t unknown_end = 0; // of unknown neighbours; 0: there are none
  std::vector<token_id> bytes;
  const auto flush = [&](std::size_t begin) {
    if (unknown_end == 0)
      return;
    bytes.clear();
    add_unknown(word.substr(begin, unknown_end - begin), bytes);
    ids.insert(ids.end(), bytes.rbegin(), bytes.rend());
    unknown_end = 0;
  };
  for (std::size_t end = word.size(); end > 0;) {
    const auto& last = ends[end];
    if (last.id >= 0 && last.id != unk_id_) {
      flush(end);
      ids.push_back(last.id);
    } else if (unknown_end == 0) {
      unknown_end = end;
    }
    end = static_cast<std::size_t>(last.begin);
  }
  flush(0);
  std::reverse(ids.begin() + first, ids.end());
}

/// Neighbouring unknown characters: a token that was not matched, bytes, or the unknown token.
void unigram::add_unknown(std::string_view text, std::vector<token_id>& ids) const {
  if (!single_) // `tokenizers` looks them up again
    if (const auto id = words_.id_of(text)) {
      ids.push_back(*id);
      return;
    }
  const auto token_of = [&](char byte) { return byte_tokens_[static_cast<unsigned char>(byte)]; };
  if (byte_fallback_ && std::ranges::all_of(text, [&](char byte) { return token_of(byte) >= 0; })) {
    for (const char byte : text)
      ids.push_back(token_of(byte));
    return;
  }
  if (unk_id_ < 0)
    throw failure(errc::bad_request,
                  "the text has a character outside the vocabulary, which has no token for unknown ones");
  ids.push_back(unk_id_);
}

} // namespace troupe::tokenization
