#include "runtime/guide/banned_texts.hpp"

#include "runtime/support/error.hpp"

#include <algorithm>
#include <deque>
#include <utility>

namespace troupe::guides {

namespace {

std::uint64_t edge_of(std::uint32_t node, unsigned char byte) { return std::uint64_t{node} << 8 | byte; }

} // namespace

banned_texts::banned_texts(const std::vector<std::string>& texts, std::shared_ptr<const guide_vocabulary> vocabulary)
  : nodes_(1), vocabulary_(std::move(vocabulary)) {
  std::size_t bytes = 0;
  for (const auto& text : texts)
    bytes += text.size();
  if (texts.size() > most_texts || bytes > most_bytes)
    throw failure(errc::bad_request,
                  "`banned` may have at most " + std::to_string(most_texts) + " texts of " +
                    std::to_string(most_bytes) + " bytes together",
                  "banned");
  struct child {
    state of;
    unsigned char byte;
  };
  std::vector<std::vector<child>> children(1);
  for (const auto& text : texts) {
    if (text.empty())
      throw failure(errc::bad_request, "`banned` must not have an empty text", "banned");
    state at = 0;
    for (const unsigned char byte : text) {
      const auto [edge, is_new] = edges_.try_emplace(edge_of(at, byte), static_cast<state>(nodes_.size()));
      if (is_new) {
        children[at].push_back({edge->second, byte});
        children.emplace_back();
        nodes_.emplace_back();
      }
      at = edge->second;
    }
    nodes_[at].complete = true;
  }
  std::deque<state> open; // by depth
  for (const auto& first : children[0])
    open.push_back(first.of);
  for (; !open.empty(); open.pop_front()) {
    const auto at = open.front();
    for (const auto& [next, byte] : children[at]) {
      auto suffix = nodes_[at].fallback;
      while (suffix != 0 && !edges_.contains(edge_of(suffix, byte)))
        suffix = nodes_[suffix].fallback;
      const auto found = edges_.find(edge_of(suffix, byte));
      nodes_[next].fallback = found == edges_.end() ? 0 : found->second;
      nodes_[next].complete = nodes_[next].complete || nodes_[nodes_[next].fallback].complete;
      open.push_back(next);
    }
  }
}

banned_texts::state banned_texts::step(state from, unsigned char byte) const {
  for (;;) {
    if (const auto found = edges_.find(edge_of(from, byte)); found != edges_.end())
      return nodes_[found->second].complete ? hit : found->second;
    if (from == 0)
      return 0;
    from = nodes_[from].fallback;
  }
}

std::optional<banned_texts::state> banned_texts::advance(state from, std::string_view bytes) const {
  for (const unsigned char byte : bytes)
    if ((from = step(from, byte)) == hit)
      return {};
  return from;
}

std::span<const token_id> banned_texts::forbidden(state at) const {
  {
    const std::scoped_lock hold(lock_);
    if (const auto known = forbidden_.find(at); known != forbidden_.end())
      return known->second;
  }
  auto found = find_forbidden(at);
  const std::scoped_lock hold(lock_); // lists stay where they are, whatever is added
  return forbidden_.try_emplace(at, std::move(found)).first->second;
}

// Those of state 0, and those that complete what the state holds. The tree of tokens is walked with both states side by
// side, and no further than they differ.
std::vector<token_id> banned_texts::find_forbidden(state at) const {
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
      const auto next = step(here, tree.bytes[child]);
      const auto other = at == 0 ? state{0} : step(plain, tree.bytes[child]);
      if (next == hit && (at == 0 || other != hit)) {
        const auto& below = tree.nodes[child];
        result.insert(result.end(), tree.tokens.begin() + below.first, tree.tokens.begin() + below.end);
      } else if (next != hit && (at == 0 || next != other)) {
        open.push_back({child, next, other});
      }
    }
  }
  for (const auto id : vocabulary_->special_tokens())
    if (!advance(at, vocabulary_->any_bytes(id)))
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
  if (!texts_)
    return;
  shown_ = texts_->advance(shown_, bytes).value_or(0);
  if (!special)
    hidden_ = texts_->advance(hidden_, bytes).value_or(0);
}

} // namespace troupe::guides
