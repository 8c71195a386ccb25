// Blocks of K and V outside the pool, on their way to another one or to a file: their names, and the memory that they
// travel in. Images are taken and given back on any thread; their bytes belong to who holds them.
#pragma once

#include "kernels/ops.hpp"
#include "runtime/scheduling/block_key.hpp"
#include "runtime/scheduling/prefix_salt.hpp"
#include "runtime/support/types.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

namespace troupe {

/// Makes keys. Hashes of 128 bits under a secret, so that no client can choose prompts whose keys are equal.
class block_keys {
public:
  static constexpr std::size_t secret_bytes = 192;
  using secret = std::array<std::byte, secret_bytes>;

  /// `numerics`: the hash of the id under which blocks are exchanged.
  block_keys(const secret& s, std::array<std::uint64_t, 2> numerics) : secret_(s), numerics_(numerics) {}

  /// Of the empty chain.
  block_key root(prefix_salt salt) const;

  /// Of the chain that goes on with these tokens of a block.
  block_key next(const block_key& parent, std::span<const token_id> tokens) const;

  /// Of the states of recurrent layers behind the block of that key.
  block_key of_state(const block_key& block) const;

  /// The secret that makes a client's salts (prefix_salt.hpp) those of all who share this one.
  std::array<std::uint64_t, 2> salt_secret() const;

private:
  secret secret_;
  std::array<std::uint64_t, 2> numerics_;
};

/// One block in its canonical form (kernels/block_transfer.hpp), and what it is; or the states of recurrent layers behind
/// it (kernels/recurrent.hpp).
struct block_image {
  block_key key;
  std::int32_t place = 0; // in its chain
  std::array<token_id, kernels::block_tokens> tokens{};
  std::span<std::byte> bytes; // of the form
  bool state = false;         // of the states, with the block's place and tokens

  /// Where a state is: behind so many rows.
  std::int32_t position() const { return (place + 1) * kernels::block_tokens; }
};

using block_image_ptr = std::shared_ptr<block_image>;

/// Lends images, at most so many at a time: the bound of what is on its way. Memory is allocated when first needed and
/// kept. May end before its images.
class image_pool {
public:
  image_pool(std::size_t bytes, std::size_t most);

  /// Null if all are lent.
  block_image_ptr take() const;

  std::size_t most() const { return most_; }

private:
  struct memory {
    std::mutex access;
    std::vector<std::unique_ptr<std::byte[]>> unused;
    std::size_t lent = 0;
  };

  std::size_t bytes_, most_;
  std::shared_ptr<memory> memory_;
};

} // namespace troupe
