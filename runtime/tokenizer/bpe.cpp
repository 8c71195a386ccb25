#include "runtime/tokenizer/bpe.hpp"

#include "runtime/tokenizer/pre_tokenizer.hpp"
#include "runtime/tokenizer/unicode.hpp"

#include <algorithm>
#include <limits>

namespace troupe::tokenization {

namespace {

// Limits of the cache of words within a call: a few megabytes in total.
constexpr std::size_t longest_known_word = 64;
constexpr std::size_t most_known_words = 1 << 15;

/// Refuses a member that must not be ignored, because it changes every encoding.
void expect_empty(const json::reader& model, std::string_view key) {
  if (const auto found = model.child(key); found && !found->string().empty())
    found->refuse("is `" + std::string(found->string()) + "`; only BPE models without it are supported",
                  errc::unsupported);
}

} // namespace

bpe::bpe(const json::reader& model) {
  if (const auto type = model.child("type"); type && type->string() != "BPE")
    type->refuse("is `" + std::string(type->string()) + "`: this model type is not supported; BPE is",
                 errc::unsupported);
  if (const auto dropout = model.child("dropout"); dropout && dropout->number() != 0)
    dropout->refuse("is not 0: random tokenization is not supported", errc::unsupported);
  expect_empty(model, "continuing_subword_prefix");
  expect_empty(model, "end_of_word_suffix");
  fuse_unk_ = model.boolean("fuse_unk", false);
  byte_fallback_ = model.boolean("byte_fallback", false);
  ignore_merges_ = model.boolean("ignore_merges", false);
  read_vocabulary(model.at("vocab"));
  read_merges(model.at("merges"));
  if (const auto unk = model.child("unk_token")) {
    has_unk_ = true;
    unk_token_ = unk->string();
    unk_id_ = id_of(unk_token_).value_or(-1);
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
  std::size_t longest = 4; // an unknown character
  for (const auto text : tokens_)
    longest = std::max(longest, text.size());
  return longest;
}

void bpe::read_vocabulary(const json::reader& vocab) {
  std::size_t bytes = 0, count = 0;
  token_id highest = -1;
  for (const auto [token, value] : vocab.object()) {
    std::uint64_t id = 0;
    if (!is_utf8(token))
      vocab.refuse("has a token that is not valid Unicode");
    if (value.get_uint64().get(id) || id > highest_id)
      vocab.refuse("gives token `" + std::string(token) + "` an id that is no integer from 0 to " +
                   std::to_string(highest_id));
    bytes += token.size();
    highest = std::max(highest, static_cast<token_id>(id));
    ++count;
  }
  texts_.reserve(bytes); // tokens_ and ids_ point into it, so it must not reallocate
  tokens_.resize(static_cast<std::size_t>(highest + 1));
  ids_.reserve(count);
  characters_ = flat_map<token_id>(count);
  for (const auto [token, value] : vocab.object()) {
    const auto id = static_cast<token_id>(value.get_uint64().value_unsafe());
    auto& slot = tokens_[static_cast<std::size_t>(id)];
    if (slot.data())
      vocab.refuse("gives the id " + std::to_string(id) + " to both `" + std::string(slot) + "` and `" +
                   std::string(token) + "`");
    const std::size_t begin = texts_.size();
    texts_ += token;
    slot = std::string_view(texts_.data() + begin, token.size());
    ids_.emplace(slot, id);
    std::size_t end = 0;
    if (!slot.empty())
      if (const char32_t c = next_char(slot, end); end == slot.size())
        characters_.set(c, id);
  }
  for (int byte = 0; byte < 256; ++byte) {
    constexpr std::string_view digits = "0123456789ABCDEF";
    const std::string name{'<', '0', 'x', digits[static_cast<std::size_t>(byte >> 4)], digits[byte & 15u], '>'};
    byte_tokens_[static_cast<std::size_t>(byte)] = id_of(name).value_or(-1);
  }
}

void bpe::read_merges(const json::reader& merges) {
  const auto list = merges.array();
  merges_ = flat_map<merge>(list.size());
  std::size_t rank = 0;
  for (json::value item : list) {
    std::string_view left, right, line;
    json::array pair;
    if (!item.get_string().get(line)) { // "left right"
      if (line.starts_with("#version"))
        continue;
      const auto space = line.find(' ');
      if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos)
        merges.refuse("entry " + std::to_string(rank) + " must be two tokens with a space between");
      left = line.substr(0, space);
      right = line.substr(space + 1);
    } else if (item.get_array().get(pair) || pair.size() != 2 || pair.at(0).get_string().get(left) ||
               pair.at(1).get_string().get(right)) {
      merges.refuse("entry " + std::to_string(rank) + " must be a string or a pair of strings");
    }
    add_merge(merges, rank++, left, right);
  }
}

void bpe::add_merge(const json::reader& where, std::size_t rank, std::string_view left, std::string_view right) {
  const auto known = [&](std::string_view token) {
    if (const auto id = id_of(token))
      return *id;
    where.refuse("entry " + std::to_string(rank) + " names `" + std::string(token) +
                 "`, which is not in the vocabulary");
  };
  const token_id a = known(left), b = known(right);
  std::string joined(left);
  joined += right;
  merges_.set(pair_key(a, b), {static_cast<std::uint32_t>(rank), known(joined)});
}

std::optional<token_id> bpe::id_of(std::string_view token) const {
  const auto found = ids_.find(token);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

bool bpe::has(token_id id) const {
  return id >= 0 && static_cast<std::size_t>(id) < tokens_.size() && tokens_[static_cast<std::size_t>(id)].data();
}

std::size_t bpe::longest_token() const {
  std::size_t longest = 0;
  for (const auto& token : tokens_)
    longest = std::max(longest, token.size());
  return longest;
}

std::string_view bpe::token(token_id id) const {
  return has(id) ? tokens_[static_cast<std::size_t>(id)] : std::string_view();
}

void bpe::encode(std::string_view word, bpe_scratch& scratch, std::vector<token_id>& ids) const {
  if (ignore_merges_) {
    if (const auto id = id_of(word)) {
      ids.push_back(*id);
      return;
    }
  }
  const bool short_word = word.size() <= longest_known_word;
  if (short_word) {
    if (const auto found = scratch.known.find(word); found != scratch.known.end()) {
      const auto first = scratch.known_ids.begin() + found->second.begin;
      ids.insert(ids.end(), first, first + found->second.count);
      return;
    }
  }
  to_symbols(word, scratch);
  merge_symbols(scratch);
  const std::size_t before = ids.size();
  for (const auto& symbol : scratch.symbols)
    if (!symbol.merged_away)
      ids.push_back(symbol.id);
  if (short_word && scratch.known.size() < most_known_words) {
    const auto begin = static_cast<std::uint32_t>(scratch.known_ids.size());
    scratch.known_ids.insert(scratch.known_ids.end(), ids.begin() + static_cast<std::ptrdiff_t>(before), ids.end());
    scratch.known.emplace(word, bpe_scratch::range{begin, static_cast<std::uint32_t>(ids.size() - before)});
  }
}

/// One symbol per character. Characters outside the vocabulary become bytes or the unknown token.
void bpe::to_symbols(std::string_view word, bpe_scratch& scratch) const {
  if (word.size() > std::numeric_limits<std::int32_t>::max())
    throw failure(errc::bad_request, "the text is too long to be tokenized");
  auto& symbols = scratch.symbols;
  symbols.clear();
  const auto add = [&](token_id id) {
    const auto index = static_cast<std::int32_t>(symbols.size());
    symbols.push_back({id, index - 1, index + 1, false});
  };
  bool unk_waits = false; // the last character was unknown, and the next one may fuse with it
  for (std::size_t pos = 0; pos < word.size();) {
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
void bpe::merge_symbols(bpe_scratch& scratch) const {
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
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(symbols.size()); ++i)
    if (const auto* m = find(i))
      queue.push_back(entry(*m, i));
  std::make_heap(queue.begin(), queue.end(), std::greater<>());
  const auto enqueue = [&](std::int32_t left) {
    if (const auto* m = left < 0 ? nullptr : find(left)) {
      queue.push_back(entry(*m, left));
      std::push_heap(queue.begin(), queue.end(), std::greater<>());
    }
  };
  while (!queue.empty()) {
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
