#include "runtime/kv/chain_fetch.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace troupe {

namespace {

constexpr std::size_t chain_block = kernels::block_tokens;

} // namespace

chain_fetch::chain_fetch(kv_store& store, read_time& times, std::span<const token_id> tokens, std::int32_t first,
                         const block_key& before, double recompute_ms, clock_fn now,
                         std::optional<std::int32_t> reached)
  : store_(store),
    times_(times),
    tokens_(tokens),
    place_(first),
    key_(before),
    recompute_ms_(recompute_ms),
    now_(std::move(now)),
    goes_on_(times.less_than(recompute_ms)) {
  if (!goes_on_)
    times_.fade();
  else if (reached)
    find_states(*reached, before);
}

std::span<const token_id> chain_fetch::tokens_of(std::int32_t place) const {
  return tokens_.subspan(static_cast<std::size_t>(place) * chain_block, chain_block);
}

// Blocks behind the last state are of no use, and none are if there is no state. The last token is always computed.
void chain_fetch::find_states(std::int32_t reached, block_key key) {
  const auto most = tokens_.empty() ? 0 : static_cast<std::int32_t>((tokens_.size() - 1) / chain_block);
  for (auto place = reached; place < most; ++place) {
    if (place == place_)
      key_ = key;
    key = store_.keys().next(key, tokens_of(place));
    if (place >= place_ && !store_.contains(key))
      break;
    if (store_.contains(store_.keys().of_state(key)))
      states_.emplace_back(place, key);
  }
  end_ = states_.empty() ? place_ : std::max(place_, states_.back().first + 1);
  goes_on_ = place_ < *end_;
}

block_image_ptr chain_fetch::state(const image_pool& images) {
  while (!goes_on_ && !states_.empty()) {
    const auto [place, key] = states_.back();
    if (place >= place_) { // a block before it could not be read
      states_.pop_back();
      continue;
    }
    auto image = images.take();
    if (!image)
      return nullptr;
    states_.pop_back();
    image->key = store_.keys().of_state(key);
    image->place = place;
    image->state = true;
    std::ranges::copy(tokens_of(place), image->tokens.begin());
    if (store_.read(*image) == kv_store::outcome::found) {
      states_.clear();
      return image;
    }
  }
  return nullptr;
}

std::vector<block_image_ptr> chain_fetch::next(const image_pool& images, std::size_t most) {
  std::vector<block_image_ptr> read;
  const auto began = now_();
  while (goes_on_ && read.size() < most) {
    if ((static_cast<std::size_t>(place_) + 1) * chain_block > tokens_.size() || (end_ && place_ >= *end_)) {
      goes_on_ = false;
      break;
    }
    const auto tokens = tokens_of(place_);
    const auto key = store_.keys().next(key_, tokens);
    if (!store_.contains(key)) { // before an image is taken for nothing
      goes_on_ = false;
      break;
    }
    auto image = images.take();
    if (!image)
      break;
    image->key = key;
    image->place = place_;
    std::ranges::copy(tokens, image->tokens.begin());
    if (store_.read(*image) != kv_store::outcome::found) {
      goes_on_ = false;
      break;
    }
    read.push_back(std::move(image));
    key_ = key;
    ++place_;
  }
  if (!read.empty()) {
    const std::chrono::duration<double, std::milli> took = now_() - began;
    times_.observe(took.count() / static_cast<double>(read.size()));
    goes_on_ = goes_on_ && times_.less_than(recompute_ms_);
  }
  return read;
}

} // namespace troupe
