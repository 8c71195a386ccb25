// Recorded steps over a real attention plan: a replayed step has all the memory that it needs.
#include "runtime/execution/gpu/step_graphs.hpp"
#include "tests/emulation/cuda/queues.hpp"

#include <doctest/doctest.h>

#include <bit>
#include <random>

using namespace troupe;
using namespace troupe::kernels;
using kernels::cuda::emulated::check_memory;
using kernels::cuda::emulated::counted;

namespace {

constexpr int heads = 8, kv_heads = 2, dim = 64, columns = (heads + 2 * kv_heads) * dim, most_rows = 16;
constexpr int partition_blocks = 16, pool = 700;

/// Decode rows, one per sequence.
struct rows {
  std::vector<sequence_rows> sequences;
  std::vector<std::int32_t> tables;

  /// Groups of `share` rows share `partitions` whole partitions; every row has some tokens of its own.
  static rows make(int count, int share, int partitions) {
    rows result;
    std::int32_t own = pool;
    for (int i = 0; i < count; ++i) {
      result.sequences.push_back(
        {i, 1, partitions * partition_tokens + 5, static_cast<std::int32_t>(result.tables.size())});
      for (int b = 0; b < partitions * partition_blocks; ++b)
        result.tables.push_back(i / share * partitions * partition_blocks + b);
      result.tables.push_back(--own);
    }
    return result;
  }
};

/// A device whose steps are attention over a random cache, recorded or not.
class machine {
public:
  explicit machine(bool records) : records_(records) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::vector<std::uint16_t> block(cache_->shape.block_bytes() / 2);
    for (int b = 0; b < pool; ++b) {
      for (auto& x : block)
        x = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(normal(random)) >> 16);
      device_->restore_block(device_->queue(), *cache_, b, block.data());
      device_->queue().synchronise(); // `block` is written again
    }
    std::vector<float> q(most_rows * columns);
    for (auto& x : q)
      x = normal(random);
    cuda::copy_to_device(device_->queue(), qkv_.get(), q.data(), q.size() * sizeof(float));
    run(rows::make(1, 1, 0)); // later steps are staged with the attention options of this one
  }

  std::vector<float> run(const rows& r) {
    const batch step{r.sequences, r.tables};
    const auto count = r.sequences.size();
    const std::vector<std::int32_t> tokens(count, 0);
    std::vector<std::int32_t> logit_rows;
    for (std::size_t i = 0; i < count; ++i)
      logit_rows.push_back(static_cast<std::int32_t>(i));
    device_->stage({tokens, step, logit_rows, true});
    device_->begin_step(nullptr);
    graphs_.run(*device_, records_ ? device_->launch_shape() : std::vector<std::uint64_t>{}, [&] {
      device_->attention({out_.get(), dtype::f32, count, heads * dim, heads * dim},
                         {qkv_.get(), dtype::f32, count, columns, columns}, heads, 0.125f, 0, *cache_, 0, step);
    });
    std::vector<float> result(count * heads * dim);
    cuda::copy_to_host(device_->queue(), result.data(), out_.get(), result.size() * sizeof(float));
    device_->queue().synchronise();
    return result;
  }

private:
  bool records_;
  std::unique_ptr<cuda::cuda_backend> device_ = cuda::make_cuda_backend({.deterministic = true});
  std::unique_ptr<kv_cache> cache_ = device_->make_kv_cache({1, kv_heads, dim, kv_type::bf16, pool});
  buffer qkv_ = device_->allocate(most_rows * columns * sizeof(float)),
         out_ = device_->allocate(most_rows * heads * dim * sizeof(float));
  step_graphs graphs_;
};

} // namespace

TEST_CASE("a recorded step is not replayed for a step with the same launches but more states") {
  machine recording(true), plain(false);
  const auto alone = rows::make(8, 1, 2), shared = rows::make(8, 4, 8); // 24 and 72 states
  for (int i = 0; i < 3; ++i) {
    CHECK(recording.run(alone) == plain.run(alone));
    check_memory();
  }
  for (int i = 0; i < 3; ++i) {
    CHECK(recording.run(shared) == plain.run(shared));
    check_memory();
  }
}

TEST_CASE("steps are recorded again after memory has moved in any step") {
  machine recording(true), plain(false);
  const auto small = rows::make(2, 1, 1), large = rows::make(16, 1, 2); // 4 and 48 states; 30 fit at first
  const auto replays = [&](const rows& r) {
    const auto before = counted().replays;
    CHECK(recording.run(r) == plain.run(r));
    check_memory();
    return counted().replays - before;
  };
  CHECK(replays(small) == 0);
  CHECK(replays(small) == 1);
  CHECK(replays(small) == 1);
  CHECK(replays(large) == 0); // states move in this step
  CHECK(replays(small) == 0);
  CHECK(replays(large) == 1);
  CHECK(replays(small) == 1);
}

TEST_CASE("steps of nearly the same size replay one recording") {
  machine recording(true), plain(false);
  std::uint64_t replays = 0;
  for (int step = 0; step < 6; ++step) {
    auto r = rows::make(9, 1, 1); // 18 works and states, padded to 20
    r.sequences[0].first_position = step % 3 == 0 ? 5 : partition_tokens + 5;
    const auto before = counted().replays;
    CHECK(recording.run(r) == plain.run(r));
    replays += counted().replays - before;
  }
  CHECK(replays == 5);
  check_memory();
}
