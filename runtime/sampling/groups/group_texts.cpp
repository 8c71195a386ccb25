#include "runtime/sampling/groups/group_texts.hpp"

#include <utility>

namespace troupe {

group_texts::group_texts(const sampling_params& params, token_text_ptr text)
  : text_(std::move(text)), min_tokens_(static_cast<std::size_t>(params.min_tokens)) {
  if (text_ && !params.stop.empty())
    texts_.emplace_back(params.stop);
}

stop_matcher group_texts::after(std::size_t row, token_id id, std::size_t tokens, bool& stopped) const {
  auto matcher = texts_[row];
  stopped = matcher.push((*text_)(id), tokens > min_tokens_).stopped;
  return matcher;
}

bool group_texts::stops(std::size_t row, token_id id, std::size_t tokens) const {
  bool stopped = false;
  if (any())
    after(row, id, tokens, stopped);
  return stopped;
}

void group_texts::advance(std::span<const group_child> children, std::size_t tokens) {
  if (!any() || children.empty())
    return;
  std::vector<stop_matcher> next;
  bool stopped = false;
  for (const auto& child : children)
    next.push_back(after(child.parent, child.token, tokens, stopped));
  texts_ = std::move(next);
}

} // namespace troupe
