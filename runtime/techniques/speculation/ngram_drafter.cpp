#include "runtime/techniques/speculation/ngram_drafter.hpp"

#include <algorithm>
#include <bit>
#include <tuple>

namespace troupe {

namespace {

constexpr std::uint64_t factor = 0x9e3779b97f4a7c15; // odd: its powers keep all bits of older tokens

// Never 0, so that n-grams of the token 0 differ by their length.
constexpr std::uint64_t digit(token_id t) { return static_cast<std::uint64_t>(t) + 1; }

constexpr std::uint64_t power(std::size_t n) {
  std::uint64_t p = 1;
  while (n-- > 0)
    p *= factor;
  return p;
}

// Tables take bucket and tag from the high and the low bits, over which a polynomial's must be spread.
constexpr std::uint64_t spread(std::uint64_t h) {
  h = (h ^ h >> 32) * 0xd6e8feb86659fd93;
  return h ^ h >> 32;
}

} // namespace

ngram_drafter::table::table(std::size_t entries)
  : shift_(64 - std::countr_zero(entries / std::tuple_size_v<bucket>)), buckets_(entries / std::tuple_size_v<bucket>) {}

void ngram_drafter::table::enter(std::uint64_t hash, std::size_t behind) {
  auto& in = buckets_[bucket_of(hash)];
  const auto tag = static_cast<std::uint32_t>(hash);
  const auto old = std::find_if(in.begin(), in.end() - 1, [&](const entry& e) { return e.tag == tag; });
  std::move_backward(in.begin(), old, old + 1);
  in.front() = {tag, static_cast<std::uint32_t>(behind)};
}

std::size_t ngram_drafter::table::find(std::uint64_t hash) const {
  for (const auto& e : buckets_[bucket_of(hash)])
    if (e.tag == static_cast<std::uint32_t>(hash))
      return e.behind;
  return 0;
}

ngram_drafter::tables ngram_drafter::make_tables(std::size_t tokens) {
  const auto entries = std::bit_ceil(std::clamp<std::size_t>(tokens * 2, 64, 1 << 16));
  return {table(entries), table(entries), table(entries)};
}

ngram_drafter::ngram_drafter(std::span<const token_id> prediction, std::size_t expected)
  : predicted_(prediction.size()),
    text_(prediction.begin(), prediction.end()),
    in_prediction_(make_tables(prediction.size())),
    in_sequence_(make_tables(expected)) {
  hashes h{};
  for (std::size_t end = 1; end <= predicted_; ++end) {
    roll(h, 0, end);
    enter(in_prediction_, h, 0, end);
  }
  if (predicted_ > 0) { // the answer is taken to begin as predicted
    source_ = 0;
    matched_ = longest_match;
  }
}

// Takes the last token of text_[begin, end) into the hashes, and the one before the last n out.
void ngram_drafter::roll(hashes& h, std::size_t begin, std::size_t end) const {
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const auto n = lengths[i];
    h[i] = h[i] * factor + digit(text_[end - 1]);
    if (end - begin > n)
      h[i] -= digit(text_[end - 1 - n]) * power(n);
  }
}

void ngram_drafter::enter(tables& into, const hashes& h, std::size_t begin, std::size_t end) {
  for (std::size_t i = 0; i < lengths.size(); ++i)
    if (end - begin >= lengths[i])
      into[i].enter(spread(h[i]), end);
}

void ngram_drafter::append(std::span<const token_id> tokens) {
  const bool is_prompt = text_.size() == predicted_;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (!is_prompt)
      follow(tokens[i]);
    text_.push_back(tokens[i]);
    roll(hashes_, predicted_, text_.size());
    if (i + 1 == tokens.size())
      look_up();
    enter(in_sequence_, hashes_, predicted_, text_.size());
  }
}

// Keeps to a source as long as it is right: among several that match, it is the likeliest.
void ngram_drafter::follow(token_id token) {
  if (!source_)
    return;
  if (text_[*source_] != token) {
    source_.reset();
    matched_ = 0;
    return;
  }
  matched_ = std::min(matched_ + 1, longest_match);
  if (++*source_ == predicted_) // the prediction is used up
    source_.reset();
}

// Before the last token's n-grams are entered, which would find themselves.
void ngram_drafter::look_up() {
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    if ((source_ && matched_ >= lengths[i]) || text_.size() - predicted_ < lengths[i])
      continue;
    for (const auto* in : {&in_prediction_, &in_sequence_}) {
      const auto behind = (*in)[i].find(spread(hashes_[i]));
      if (behind == 0 || behind == predicted_)
        continue;
      const auto length = match_length(behind);
      if (length >= lengths[i] && length > (source_ ? matched_ : 0)) {
        source_ = behind;
        matched_ = length;
      }
    }
  }
}

std::size_t ngram_drafter::match_length(std::size_t behind) const {
  const auto begin = behind <= predicted_ ? 0 : predicted_;
  std::size_t n = 0;
  while (n < longest_match && n < behind - begin && n < text_.size() - predicted_ &&
         text_[behind - 1 - n] == text_[text_.size() - 1 - n])
    ++n;
  return n;
}

void ngram_drafter::propose(std::size_t most, std::vector<token_id>& guesses) {
  if (!source_)
    return;
  const auto first = guesses.size();
  const auto end = *source_ < predicted_ ? predicted_ : text_.size();
  for (std::size_t i = 0; i < most; ++i) {
    const auto at = *source_ + i;
    if (at < end)
      guesses.push_back(text_[at]);
    else if (end == predicted_)
      return;
    else // what follows the end repeats, too
      guesses.push_back(guesses[first + at - end]);
  }
}

std::size_t ngram_drafter::grade() const { return matched_ >= 16 ? 3 : matched_ >= 8 ? 2 : matched_ >= 4 ? 1 : 0; }

std::size_t ngram_drafter::memory() const {
  auto bytes = text_.capacity() * sizeof(token_id);
  for (const auto* each : {&in_prediction_, &in_sequence_})
    for (const auto& t : *each)
      bytes += t.bytes();
  return bytes;
}

} // namespace troupe
