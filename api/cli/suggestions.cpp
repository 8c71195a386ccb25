#include "api/cli/suggestions.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace troupe::cli {

namespace {

constexpr std::size_t longest = 64; // of names that are compared

using pair = std::pair<std::string_view, std::string_view>;
constexpr auto others = std::to_array<pair>({
  {"c", "max-context"},
  {"t", "threads"},
  {"s", "seed"},
  {"ctx-size", "max-context"},
  {"num-ctx", "max-context"},
  {"context", "max-context"},
  {"context-length", "max-context"},
  {"max-model-len", "max-context"},
  {"tokens", "max-tokens"},
  {"n-predict", "max-tokens"},
  {"num-predict", "max-tokens"},
  {"max-new-tokens", "max-tokens"},
  {"repeat-penalty", "repetition-penalty"},
  {"num-return-sequences", "n"},
  {"system-prompt", "system"},
  {"chat-template-file", "chat-template"},
  {"grammar-file", "grammar"},
  {"json-schema-file", "json-schema"},
  {"model-draft", "draft"},
  {"speculative-model", "draft"},
  {"cache-type-k", "kv-dtype"},
  {"cache-type-v", "kv-dtype"},
  {"kv-cache-dtype", "kv-dtype"},
  {"kv-cache-memory-bytes", "kv-cache"},
  {"quantization", "quantize"},
  {"num-threads", "threads"},
  {"max-num-seqs", "max-sequences"},
  {"parallel", "max-sequences"},
  {"max-num-batched-tokens", "step-tokens"},
  {"ubatch-size", "step-tokens"},
  {"served-model-name", "model-name"},
  {"alias", "model-name"},
  {"lora-modules", "lora"},
  {"control-vector", "steer"},
  {"tool-call-parser", "tool-parser"},
  {"file", "PROMPT"},
  {"prompt", "PROMPT"},
  {"p", "PROMPT"},
  {"generate", "run"},
  {"complete", "run"},
  {"server", "serve"},
  {"start", "serve"},
  {"detokenize", "tokenize"},
  {"convert", "quantize"},
  {"perplexity", "bench"},
});

/// Optimal string alignment: Levenshtein's distance with swaps of neighbours.
std::size_t distance(std::string_view a, std::string_view b) {
  std::array<std::array<std::size_t, longest + 1>, 3> rows;
  auto &before = rows[0], &last = rows[1], &now = rows[2];
  for (std::size_t j = 0; j <= b.size(); ++j)
    last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    now[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        now[j] = std::min(now[j], before[j - 2] + 1);
    }
    before = last;
    last = now;
  }
  return last[b.size()];
}

} // namespace

std::string nearest(std::string_view typed, const std::vector<std::string>& names) {
  constexpr std::size_t shortest = 3; // of what says enough to guess from
  if (typed.size() < shortest || typed.size() > longest)
    return {};
  std::string best;
  auto below = typed.size() / 3 + 1;
  for (const auto& name : names)
    if (const auto d = name.size() <= longest ? distance(typed, name) : below; d < below) {
      below = d;
      best = name;
    }
  return best;
}

std::string_view name_here(std::string_view elsewhere) {
  const auto found = std::ranges::find(others, elsewhere, &pair::first);
  return found == others.end() ? std::string_view() : found->second;
}

} // namespace troupe::cli
