#include "runtime/kv/chain_fetch.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace troupe {

namespace {

constexpr std::size_t chain_block = kernels::block_tokens;

} // namespace

chain_fetch::chain_fetch(kv_store& store, read_time& times, std::span<const token_id> tokens, std::int32_t first,
                         const block_key& before, double recompute_ms, clock_fn now)
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
}

std::vector<block_image_ptr> chain_fetch::next(const image_pool& images, std::size_t most) {
  std::vector<block_image_ptr> read;
  const auto began = now_();
  while (goes_on_ && read.size() < most) {
    const auto at = static_cast<std::size_t>(place_) * chain_block;
    if (at + chain_block > tokens_.size()) {
      goes_on_ = false;
      break;
    }
    const auto tokens = tokens_.subspan(at, chain_block);
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
