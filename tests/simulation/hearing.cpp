#include "tests/simulation/hearing.hpp"

#include <algorithm>

namespace troupe::simulation {

bool hearing::take(const event& e) {
  if (ended()) {
    trouble_ = "an event after the last one";
    return true;
  }
  if (const auto* t = std::get_if<token_event>(&e)) {
    if (what_.finish.contains(t->index))
      trouble_ = "a token after its sequence had ended";
    if (!t->token_ids.empty() && t->position != what_.ids[t->index].size())
      trouble_ = "a token at the wrong position";
    auto& ids = what_.ids[t->index];
    ids.insert(ids.end(), t->token_ids.begin(), t->token_ids.end());
    what_.text[t->index] += t->text;
    auto& tokens = what_.tokens[t->index];
    tokens.insert(tokens.end(), t->logprobs.begin(), t->logprobs.end());
    what_.prompt.insert(what_.prompt.end(), t->prompt.begin(), t->prompt.end());
    if (t->finish)
      what_.finish[t->index] = *t->finish;
    return false;
  }
  if (const auto* done = std::get_if<done_event>(&e))
    what_.done = *done;
  else
    what_.failed = std::get<error>(e);
  return true;
}

bool begins(const testing::heard& part, const testing::heard& whole) {
  const auto is_same = [](const sampled_token& x, const sampled_token& y) {
    return x.id == y.id && x.logprob == y.logprob;
  };
  const auto prefix = [](const auto& a, const auto& b, auto equal) {
    return a.size() <= b.size() && std::equal(a.begin(), a.end(), b.begin(), equal);
  };
  for (const auto& [index, ids] : part.ids)
    if (const auto its = whole.ids.find(index);
        !ids.empty() && (its == whole.ids.end() || !prefix(ids, its->second, std::equal_to())))
      return false;
  for (const auto& [index, tokens] : part.tokens)
    if (const auto its = whole.tokens.find(index);
        !tokens.empty() && (its == whole.tokens.end() || !prefix(tokens, its->second, is_same)))
      return false;
  return prefix(part.prompt, whole.prompt, is_same);
}

} // namespace troupe::simulation
