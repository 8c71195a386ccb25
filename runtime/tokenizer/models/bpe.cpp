#include "runtime/tokenizer/models/bpe.hpp"

#include "runtime/support/meter.hpp"
#include "runtime/tokenizer/pre_tokenizer.hpp"
#include "runtime/tokenizer/unicode.hpp"

#include <algorithm>

namespace troupe::tokenization {

namespace {

constexpr int charged_together = 1024; // characters and merges of one word

/// Refuses a member that must not be ignored, because it changes every encoding.
void expect_empty(const json::reader& model, std::string_view key) {
  if (const auto found = model.child(key); found && !found->string().empty())
    found->refuse("is `" + std::string(found->string()) + "`; only BPE models without it are supported",
                  errc::unsupported);
}

} // namespace

bpe::bpe(const json::reader& model) {
  if (const auto dropout = model.child("dropout"); dropout && dropout->number() != 0)
    dropout->refuse("is not 0: random tokenization is not supported", errc::unsupported);
  expect_empty(model, "continuing_subword_prefix");
  expect_empty(model, "end_of_word_suffix");
  fuse_unk_ = model.boolean("fuse_unk", false);
  byte_fallback_ = model.boolean("byte_fallback", false);
  ignore_merges_ = model.boolean("ignore_merges", false);
  words_ = vocabulary(model.at("vocab"));
  read_characters();
  read_merges(model.at("merges"));
  if (const auto unk = model.child("unk_token")) {
    has_unk_ = true;
    unk_token_ = unk->string();
    unk_id_ = words_.id_of(unk_token_).value_or(-1);
  }
}

std::size_t bpe::most_bytes_per_token(bool byte_level) const {
  const bool each_byte = byte_fallback_ && std::ranges::all_of(byte_tokens_, [](token_id id) { return id >= 0; });
  const bool each_letter = byte_level && std::ranges::all_of(byte_level_alphabet(), [&](const std::string& letter) {
                             std::size_t pos = 0;
                             return characters_.find(next_char(letter, pos)) != nullptr;
                           });
  const bool each_unknown = has_unk_ && unk_id_ >= 0 && !fuse_unk_;
  if (!each_byte && !each_letter && !each_unknown)
    return 0;
  return std::max<std::size_t>(words_.longest(), 4); // 4: an unknown character
}

void bpe::read_characters() {
  characters_ = flat_map<token_id>(words_.size());
  for (token_id id = 0; id < static_cast<token_id>(words_.id_end()); ++id) {
    const auto text = words_.text(id);
    std::size_t end = 0;
    if (!text.empty())
      if (const char32_t c = next_char(text, end); end == text.size())
        characters_.set(c, id);
  }
  for (int byte = 0; byte < 256; ++byte)
    byte_tokens_[static_cast<std::size_t>(byte)] = words_.id_of(byte_token_name(byte)).value_or(-1);
}

void bpe::read_merges(const json::reader& merges) {
  const auto list = merges.array();
  merges_ = flat_map<merge>(list.size());
  std::size_t rank = 0;
  for (json::value item : list) {
    std::string_view left, right, line;
    json::array pair;
    std::uint64_t shared = rank;        // rank
    if (!item.get_string().get(line)) { // "left right"
      if (line.starts_with("#version"))
        continue;
      const auto space = line.find(' ');
      if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos)
        merges.refuse("entry " + std::to_string(rank) + " must be two tokens with a space between");
      left = line.substr(0, space);
      right = line.substr(space + 1);
    } else if (item.get_array().get(pair) || pair.size() < 2 || pair.size() > 3 || pair.at(0).get_string().get(left) ||
               pair.at(1).get_string().get(right)) {
      merges.refuse("entry " + std::to_string(rank) + " must be a string or a pair of strings");
    } else if (pair.size() == 3 && (pair.at(2).get_uint64().get(shared) || shared > highest_id)) {
      merges.refuse("entry " + std::to_string(rank) + " has a rank that is not an integer from 0 to " +
                    std::to_string(highest_id));
    }
    add_merge(merges, rank++, static_cast<std::uint32_t>(shared), left, right);
  }
}

void bpe::add_merge(const json::reader& where, std::size_t entry, std::uint32_t rank, std::string_view left,
                    std::string_view right) {
  const auto known = [&](std::string_view token) {
    if (const auto id = words_.id_of(token))
      return *id;
    where.refuse("entry " + std::to_string(entry) + " names `" + std::string(token) +
                 "`, which is not in the vocabulary");
  };
  const token_id a = known(left), b = known(right);
  std::string joined(left);
  joined += right;
  merges_.set(pair_key(a, b), {rank, known(joined)});
}

void bpe::encode_word(std::string_view word, word_scratch& scratch, std::vector<token_id>& ids) const {
  if (ignore_merges_) {
    if (const auto id = words_.id_of(word)) {
      ids.push_back(*id);
      return;
    }
  }
  to_symbols(word, scratch);
  merge_symbols(scratch);
  for (const auto& symbol : scratch.symbols)
    if (!symbol.merged_away)
      ids.push_back(symbol.id);
}

/// One symbol per character. Characters outside the vocabulary become bytes or the unknown token.
void bpe::to_symbols(std::string_view word, word_scratch& scratch) const {
  auto& symbols = scratch.symbols;
  symbols.clear();
  const auto add = [&](token_id id) {
    const auto index = static_cast<std::int32_t>(symbols.size());
    symbols.push_back({id, index - 1, index + 1, false});
  };
  bool unk_waits = false; // the last character was unknown, and the next one may fuse with it
  std::uint64_t characters = 0;
  for (std::size_t pos = 0; pos < word.size();) {
    if (++characters % charged_together == 0) // one word may be a long text
      meter::charge(charged_together);
    const std::size_t begin = pos;
    if (const auto* id = characters_.find(next_char(word, pos))) {
      if (unk_waits)
        add(unk_id_);
      unk_waits = false;
      add(*id);
      continue;
    }
    const auto character = word.substr(begin, pos - begin);
    const auto byte_token = [&](char byte) { return byte_tokens_[static_cast<unsigned char>(byte)]; };
    if (byte_fallback_ &&
        std::all_of(character.begin(), character.end(), [&](char byte) { return byte_token(byte) >= 0; })) {
      for (char byte : character) // as the original, without adding a pending unknown token first
        add(byte_token(byte));
    } else if (has_unk_) {
      if (unk_id_ < 0)
        throw failure(errc::bad_request,
                      "the text has a character outside the vocabulary, as is the unknown token `" + unk_token_ + "`");
      if (unk_waits && !fuse_unk_)
        add(unk_id_);
      unk_waits = true;
    } // else dropped: the model cannot represent it
  }
  if (unk_waits)
    add(unk_id_);
  if (!symbols.empty())
    symbols.back().next = -1;
}

/// Merges the pair of lowest rank, leftmost first, until no pair has a merge. The queue may hold stale pairs, which are
/// recognised when they are popped.
void bpe::merge_symbols(word_scratch& scratch) const {
  auto& symbols = scratch.symbols;
  auto& queue = scratch.queue;
  queue.clear();
  const auto find = [&](std::int32_t left) -> const merge* {
    const auto& l = symbols[static_cast<std::size_t>(left)];
    return l.next < 0 ? nullptr : merges_.find(pair_key(l.id, symbols[static_cast<std::size_t>(l.next)].id));
  };
  const auto entry = [](const merge& m, std::int32_t left) {
    return std::uint64_t(m.rank) << 32 | static_cast<std::uint32_t>(left);
  };
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(symbols.size()); ++i) {
    if (i % std::int32_t{charged_together} == charged_together - 1)
      meter::charge(charged_together);
    if (const auto* m = find(i))
      queue.push_back(entry(*m, i));
  }
  std::make_heap(queue.begin(), queue.end(), std::greater<>());
  const auto enqueue = [&](std::int32_t left) {
    if (const auto* m = left < 0 ? nullptr : find(left)) {
      queue.push_back(entry(*m, left));
      std::push_heap(queue.begin(), queue.end(), std::greater<>());
    }
  };
  for (std::uint64_t times = 1; !queue.empty(); ++times) {
    if (times % charged_together == 0)
      meter::charge(charged_together);
    std::pop_heap(queue.begin(), queue.end(), std::greater<>());
    const auto top = queue.back();
    queue.pop_back();
    const auto index = static_cast<std::int32_t>(top & 0xFFFFFFFFu);
    auto& left = symbols[static_cast<std::size_t>(index)];
    const auto* m = left.merged_away ? nullptr : find(index);
    if (!m || m->rank != top >> 32)
      continue;
    auto& right = symbols[static_cast<std::size_t>(left.next)];
    left.id = m->id;
    left.next = right.next;
    right.merged_away = true;
    if (left.next >= 0)
      symbols[static_cast<std::size_t>(left.next)].previous = index;
    enqueue(left.previous);
    enqueue(index);
  }
}

} // namespace troupe::tokenization
