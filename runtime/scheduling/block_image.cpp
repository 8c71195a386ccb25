#include "runtime/scheduling/block_image.hpp"

#include <algorithm>
#include <utility>

#include <xxhash.h>

namespace troupe {

namespace {

/// Plain words, without padding.
template <std::size_t N>
block_key hash_under(const block_keys::secret& secret, const std::array<std::uint64_t, N>& words) {
  const auto h = XXH3_128bits_withSecret(words.data(), sizeof words, secret.data(), secret.size());
  return {h.high64, h.low64};
}

} // namespace

block_key block_keys::root(prefix_salt salt) const {
  return hash_under(secret_, std::array{numerics_[0], numerics_[1], salt});
}

block_key block_keys::next(const block_key& parent, std::span<const token_id> tokens) const {
  std::array<std::uint64_t, 2 + kernels::block_tokens / 2> words{parent.high, parent.low};
  for (std::size_t i = 0; i < tokens.size() && i < kernels::block_tokens; ++i)
    words[2 + i / 2] |= std::uint64_t{static_cast<std::uint32_t>(tokens[i])} << (i % 2 * 32);
  return hash_under(secret_, words);
}

// No root or block has this key: what they hash has another length.
block_key block_keys::of_state(const block_key& block) const {
  return hash_under(secret_, std::array<std::uint64_t, 4>{block.high, block.low, 0x7374617465});
}

std::array<std::uint64_t, 2> block_keys::salt_secret() const {
  const auto h = hash_under(secret_, std::array<std::uint64_t, 1>{0x73616c74}); // of no root or block: shorter
  return {h.high, h.low};
}

image_pool::image_pool(std::size_t bytes, std::size_t most)
  : bytes_(bytes), most_(most), memory_(std::make_shared<memory>()) {}

block_image_ptr image_pool::take() const {
  std::unique_ptr<std::byte[]> bytes;
  {
    const std::lock_guard lock(memory_->access);
    if (memory_->lent == most_)
      return nullptr;
    if (!memory_->unused.empty()) {
      bytes = std::move(memory_->unused.back());
      memory_->unused.pop_back();
    }
    memory_->unused.reserve(most_); // so that giving back cannot fail
    ++memory_->lent;
  }
  const auto give_back = [of = memory_](std::unique_ptr<std::byte[]> used) {
    const std::lock_guard lock(of->access);
    --of->lent;
    if (used)
      of->unused.push_back(std::move(used));
  };
  std::unique_ptr<block_image> image;
  try {
    if (!bytes)
      bytes = std::make_unique_for_overwrite<std::byte[]>(bytes_);
    image = std::make_unique<block_image>();
  } catch (const std::bad_alloc&) {
    give_back(std::move(bytes));
    return nullptr;
  }
  image->bytes = {bytes.get(), bytes_};
  auto* own = bytes.release();
  try { // if there is no memory for the pointer, it gives the image back itself
    return block_image_ptr(image.release(), [give_back, own](block_image* i) {
      give_back(std::unique_ptr<std::byte[]>(own));
      delete i;
    });
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

} // namespace troupe
