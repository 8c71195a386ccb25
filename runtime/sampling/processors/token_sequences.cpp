#include "runtime/sampling/processors/token_sequences.hpp"

#include "runtime/sampling/sampling_ranges.hpp"
#include "runtime/support/error.hpp"

#include <algorithm>
#include <cmath>

namespace troupe {

namespace {

namespace limits = sampling_fields;

std::vector<sequence_bias> checked_sequences(std::vector<sequence_bias> entries, const char* field) {
  expect_at_most(field, entries.size(), limits::most_sequence_biases);
  for (const auto& [tokens, bias] : entries) {
    if (tokens.empty())
      refuse_field(field, "has a text without tokens");
    if (tokens.size() > limits::most_sequence_tokens)
      refuse_field(field,
                   "may have texts of at most " + std::to_string(limits::most_sequence_tokens) + " tokens, not " +
                     std::to_string(tokens.size()));
    if (const auto id = *std::ranges::min_element(tokens); id < 0)
      refuse_field(field, "must consist of token ids, and " + std::to_string(id) + " is not one");
    if (!(bias <= limits::bias.most) || !(bias >= limits::bias.least || bias == -INFINITY))
      refuse_field(field, "must map texts to numbers between -100 and 100");
  }
  return entries;
}

std::vector<token_id> checked_sequences(std::vector<token_id> ids, const char* field, std::size_t most) {
  std::ranges::sort(ids);
  const auto same = std::ranges::unique(ids);
  ids.erase(same.begin(), same.end());
  expect_at_most(field, ids.size(), most);
  if (!ids.empty() && ids.front() < 0)
    refuse_field(field, "must consist of token ids, and " + std::to_string(ids.front()) + " is not one");
  return ids;
}

std::string without_leading_spaces(const std::string& text) {
  return text.substr(std::min(text.size(), text.find_first_not_of(' ')));
}

} // namespace

sequence_bias_list::sequence_bias_list(std::vector<sequence_bias> entries, const char* field)
  : shared_list(checked_sequences(std::move(entries), field)) {}

std::size_t sequence_bias_list::longest() const {
  std::size_t most = 0;
  for (const auto& entry : *this)
    most = std::max(most, entry.tokens.size());
  return most;
}

token_set::token_set(std::vector<token_id> ids, const char* field, std::size_t most)
  : shared_list(checked_sequences(std::move(ids), field, most)) {}

bool token_set::contains(token_id id) const { return std::binary_search(begin(), end(), id); }

std::vector<sequence_bias> forbid_words(std::span<const std::string> words, const encode_text& encode) {
  std::vector<sequence_bias> result;
  for (const auto& word : words) {
    const auto bare = without_leading_spaces(word);
    const auto first = encode(bare);
    if (bare.empty() || first.empty())
      refuse_field("bad_words", "has a word without tokens");
    result.push_back({first, -INFINITY});
    auto second = encode(" " + bare);
    if (second.size() == first.size() && second.front() != first.front())
      result.push_back({std::move(second), -INFINITY});
  }
  return result;
}

std::vector<token_id> breaker_tokens(std::span<const std::string> texts, const encode_text& encode) {
  std::vector<token_id> result;
  for (const auto& text : texts) {
    const auto alone = encode(text), behind = encode("a" + text);
    if (text.empty() || alone.empty() || behind.empty())
      refuse_field("dry_sequence_breakers", "has a text without tokens");
    result.push_back(alone.back());
    result.push_back(behind.back());
  }
  return result;
}

token_set usual_breakers(const encode_text& encode) {
  static const std::vector<std::string> texts{"\n", ":", "\"", "*"};
  std::vector<std::string> known; // a vocabulary may lack some
  for (const auto& text : texts)
    if (!encode(text).empty())
      known.push_back(text);
  return {breaker_tokens(known, encode), "dry_sequence_breakers", 2 * limits::most_breakers};
}

} // namespace troupe
