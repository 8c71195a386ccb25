// The emulation of threads (tests/emulation/cuda/fibers.hpp).
#include "kernels/cuda/device/launch.hpp"
#include "tests/kernels/cuda/support.hpp"

using namespace troupe::kernels::cuda;

namespace {

struct rotate_kernel {
  static constexpr const char* name = "rotate";
  static constexpr unsigned threads = 96;
  int* data;
  bool barrier;
  void operator()() const {
    auto* shared = reinterpret_cast<int*>(simt::shared());
    shared[simt::thread()] = data[simt::block_x() * threads + simt::thread()];
    if (barrier)
      simt::sync_block();
    data[simt::block_x() * threads + simt::thread()] = shared[(simt::thread() + 1) % threads];
  }
};

struct divergent_kernel {
  static constexpr const char* name = "divergent";
  static constexpr unsigned threads = 64;
  bool whole_block;
  void operator()() const {
    if (simt::thread() == 5)
      return;
    if (whole_block)
      simt::sync_block();
    else
      simt::warp_sum(1);
  }
};

/// Passes data through shared memory. Before a thread waits, the emulation may or may not have copied.
struct copying_kernel {
  static constexpr const char* name = "copying";
  static constexpr unsigned threads = 32;
  const std::uint32_t* from;
  std::uint32_t *to, *early;
  bool waits;
  void operator()() const {
    auto* shared = reinterpret_cast<std::uint32_t*>(simt::shared());
    shared[4 * simt::thread()] = 0;
    simt::copy_async(shared + 4 * simt::thread(), from + 4 * simt::thread());
    early[simt::thread()] = shared[4 * simt::thread()];
    if (waits)
      simt::wait_for_copies();
    simt::sync_block();
    for (unsigned i = 0; i < 4; ++i)
      to[4 * simt::thread() + i] = shared[4 * ((simt::thread() + 1) % threads) + i];
  }
};

struct throwing_kernel {
  static constexpr const char* name = "throwing";
  static constexpr unsigned threads = 32;
  void operator()() const {
    if (simt::thread() == 3)
      throw std::runtime_error("thread 3");
    simt::sync_block();
  }
};

} // namespace

TEST_CASE("Emulated CUDA: threads meet at barriers and see each other's shared memory; without a barrier they do not") {
  const stream on;
  std::vector<int> data(2 * 96), want(2 * 96);
  for (int i = 0; i < 2 * 96; ++i) {
    data[i] = i;
    want[i] = i / 96 * 96 + (i % 96 + 1) % 96;
  }
  for (const bool barrier : {true, true, false}) { // whichever thread runs first
    auto rotated = data;
    launch(on, {2}, 96 * sizeof(int), rotate_kernel{rotated.data(), barrier});
    CHECK((rotated == want) == barrier);
  }
}

TEST_CASE("Emulated CUDA: asynchronous copies have arrived after waiting, and may or may not have before") {
  const stream on;
  std::vector<std::uint32_t> from(4 * 32), to(4 * 32), early(32);
  std::iota(from.begin(), from.end(), 1u);
  bool seen[2] = {};
  for (int run = 0; run < 2; ++run) {
    launch(on, {1}, 4 * 32 * sizeof(std::uint32_t), copying_kernel{from.data(), to.data(), early.data(), true});
    for (std::size_t i = 0; i < to.size(); ++i)
      CHECK(to[i] == from[(i + 4) % to.size()]);
    seen[early[3] == from[12]] = true;
  }
  CHECK(seen[0]);
  CHECK(seen[1]);
  for (int run = 0; run < 2; ++run)
    CHECK_THROWS_AS(
      launch(on, {1}, 4 * 32 * sizeof(std::uint32_t), copying_kernel{from.data(), to.data(), early.data(), false}),
      std::logic_error);
}

TEST_CASE("Emulated CUDA: undefined behaviour of a GPU is an error") {
  const stream on;
  CHECK_THROWS_AS(launch(on, {1}, 0, divergent_kernel{true}), std::logic_error);
  CHECK_THROWS_AS(launch(on, {1}, 0, divergent_kernel{false}), std::logic_error);
  CHECK_THROWS_WITH(launch(on, {1}, 0, throwing_kernel{}), "thread 3");
  std::vector<int> data(96); // the next launch works again
  launch(on, {1}, 96 * sizeof(int), rotate_kernel{data.data(), true});
}
