#include "kernels/cuda/uploader.hpp"

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

namespace troupe::kernels::cuda {

namespace {

constexpr std::size_t most_threads = 8;        // more do not copy faster
constexpr std::size_t least_share = 256 << 10; // bytes; less is not worth a thread

/// Calls work(first, count) for shares of [0, count) in parallel.
template <class Work>
void in_parallel(std::size_t count, std::size_t shares, const Work& work) {
  std::vector<std::jthread> threads;
  for (std::size_t i = 1; i < shares; ++i)
    threads.emplace_back([&, i] { work(count * i / shares, count * (i + 1) / shares - count * i / shares); });
  work(0, count / shares);
}

} // namespace

void uploader::upload(std::span<const target> targets, std::size_t units, const filler& fill) {
  std::size_t unit_bytes = 0;
  for (const auto& t : targets)
    unit_bytes += t.unit_bytes;
  const std::size_t at_once = std::clamp<std::size_t>(piece_bytes / std::max<std::size_t>(unit_bytes, 1), 1,
                                                      std::max<std::size_t>(units, 1));
  const std::size_t cores = std::max(1u, std::thread::hardware_concurrency());
  for (std::size_t first = 0, turn = 0; first < units; first += at_once, ++turn) {
    auto& piece = pieces_[turn % pieces_.size()];
    const auto count = std::min(at_once, units - first), bytes = count * unit_bytes;
    piece.copied.synchronise();
    if (piece.bytes < bytes) {
      piece.memory = allocate_pinned(bytes);
      piece.bytes = bytes;
    }
    auto* memory = static_cast<std::uint8_t*>(piece.memory.get());
    const auto shares = std::clamp<std::size_t>(bytes / least_share, 1, std::min({cores, most_threads, count}));
    in_parallel(count, shares, [&](std::size_t part, std::size_t part_count) {
      std::vector<std::uint8_t*> to;
      std::size_t offset = 0;
      for (const auto& t : targets) {
        to.push_back(memory + offset + part * t.unit_bytes);
        std::memset(to.back(), 0, part_count * t.unit_bytes);
        offset += count * t.unit_bytes;
      }
      fill(first + part, part_count, to);
    });
    std::size_t offset = 0;
    for (const auto& t : targets) {
      copy_to_device(on_, static_cast<char*>(t.to) + first * t.unit_bytes, memory + offset, count * t.unit_bytes);
      offset += count * t.unit_bytes;
    }
    piece.copied.record(on_);
  }
  on_.synchronise();
}

} // namespace troupe::kernels::cuda
