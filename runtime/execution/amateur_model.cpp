#include "runtime/execution/amateur_model.hpp"

#include "runtime/execution/device.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

amateur_model::amateur_model(const device& on, runner_spec spec) : spec_(std::move(spec)) {
  if (on.capabilities().own_memory)
    throw failure(errc::unsupported, "an amateur model runs on the CPU (--device cpu), not on " + on.description(),
                  "amateur");
  runner_ = on.make_runner(spec_);
  for (auto b = spec_.blocks; b-- > 0;)
    free_.push_back(b);
}

amateur_model::~amateur_model() = default;

void amateur_model::drop_blocks(sequence& s) {
  free_.insert(free_.end(), s.blocks.begin(), s.blocks.end());
  s.blocks.clear();
  s.computed.clear();
}

// Room for the positions [0, tokens).
void amateur_model::reserve(sequence& s, std::size_t tokens) {
  const auto wanted = (tokens + kernels::block_tokens - 1) / kernels::block_tokens;
  if (wanted > static_cast<std::size_t>(spec_.blocks))
    throw failure(errc::bad_request,
                  "a sequence of " + std::to_string(tokens) +
                    " tokens does not fit into the KV cache of the amateur model",
                  "max_tokens");
  while (s.blocks.size() + free_.size() < wanted) {
    sequence* oldest = nullptr; // there is one: together they have all blocks
    for (auto& [_, other] : sequences_)
      if (&other != &s && !other.blocks.empty() && (!oldest || other.asked < oldest->asked))
        oldest = &other;
    drop_blocks(*oldest);
  }
  while (s.blocks.size() < wanted) {
    s.blocks.push_back(free_.back());
    free_.pop_back();
  }
}

std::span<const float> amateur_model::logits_after(sequence_id id, std::span<const token_id> tokens) {
  const auto context = as_size(spec_.sizes.context);
  if (tokens.empty() || tokens.size() > context)
    throw failure(errc::bad_request,
                  "a sequence of " + std::to_string(tokens.size()) +
                    " tokens does not fit into the amateur's context of " + std::to_string(context),
                  "max_tokens");
  auto& s = sequences_[id];
  s.asked = ++calls_;
  reserve(s, tokens.size());
  const auto differs = std::ranges::mismatch(s.computed, tokens).in1;
  // The last token's row is computed again, if need be, for its logits.
  s.computed.resize(std::min(static_cast<std::size_t>(differs - s.computed.begin()), tokens.size() - 1));
  while (s.computed.size() < tokens.size()) {
    const auto first = s.computed.size(), rows = std::min(tokens.size() - first, as_size(spec_.sizes.rows));
    step_plan plan;
    plan.step = ++steps_;
    plan.tokens.assign(tokens.begin() + static_cast<std::ptrdiff_t>(first),
                       tokens.begin() + static_cast<std::ptrdiff_t>(first + rows));
    plan.sequences.push_back({0, static_cast<std::int32_t>(rows), static_cast<std::int32_t>(first), 0});
    plan.block_tables = s.blocks;
    if (first + rows == tokens.size())
      plan.logit_rows.push_back(static_cast<std::int32_t>(rows) - 1);
    output_ = {};
    output_ = runner_->run(plan);
    s.computed.insert(s.computed.end(), plan.tokens.begin(), plan.tokens.end());
  }
  return {output_.logits.get(), output_.vocab};
}

void amateur_model::forget(sequence_id id) {
  if (const auto found = sequences_.find(id); found != sequences_.end()) {
    drop_blocks(found->second);
    sequences_.erase(found);
  }
}

} // namespace troupe
