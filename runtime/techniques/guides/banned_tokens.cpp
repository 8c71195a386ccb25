#include "runtime/techniques/guides/banned_tokens.hpp"

#include <algorithm>

namespace troupe::guides {

std::span<const token_id> banned_tokens::forbidden(state at) const {
  {
    const std::scoped_lock hold(lock_);
    if (const auto known = forbidden_.find(at); known != forbidden_.end())
      return known->second;
  }
  auto found = find_forbidden(at);
  const std::scoped_lock hold(lock_); // lists stay where they are, whatever is added
  return forbidden_.try_emplace(at, std::move(found)).first->second;
}

// The tokens of state 0, and those that complete what the state holds. Walks the tree of tokens with both states side
// by side, and no further than they differ.
std::vector<token_id> banned_tokens::find_forbidden(state at) const {
  std::vector<token_id> result;
  const auto& tree = vocabulary_->all();
  struct place {
    std::uint32_t node;
    state here, plain; // from `at`, and from 0
  };
  std::vector<place> open;
  if (at != 0) {
    const auto always = forbidden(0);
    result.assign(always.begin(), always.end());
  }
  if (!tree.empty())
    open.push_back({0, at, 0});
  while (!open.empty()) {
    const auto [index, here, plain] = open.back();
    open.pop_back();
    const auto& node = tree.nodes[index];
    for (auto child = node.children; child < node.children + node.count; ++child) {
      const auto next = texts_.step(here, tree.bytes[child]);
      const auto other = at == 0 ? state{0} : texts_.step(plain, tree.bytes[child]);
      if (next == banned_texts::hit && (at == 0 || other != banned_texts::hit)) {
        const auto& below = tree.nodes[child];
        result.insert(result.end(), tree.tokens.begin() + below.first, tree.tokens.begin() + below.end);
      } else if (next != banned_texts::hit && (at == 0 || next != other)) {
        open.push_back({child, next, other});
      }
    }
  }
  for (const auto id : vocabulary_->special_tokens())
    if (!texts_.advance(at, vocabulary_->any_bytes(id)))
      result.push_back(id);
  std::ranges::sort(result);
  result.erase(std::ranges::unique(result).begin(), result.end());
  return result;
}

bool banned_state::forbids(token_id token) const {
  bool found = false;
  each_list([&](std::span<const token_id> list) { found = found || std::ranges::binary_search(list, token); });
  return found;
}

void banned_state::advance(std::string_view bytes, bool special) {
  if (!of_)
    return;
  shown_ = of_->texts().advance(shown_, bytes).value_or(0);
  if (!special)
    hidden_ = of_->texts().advance(hidden_, bytes).value_or(0);
}

} // namespace troupe::guides
