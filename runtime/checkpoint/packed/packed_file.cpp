#include "runtime/checkpoint/packed/packed_file.hpp"

#include "kernels/cpu/thread_pool.hpp"
#include "runtime/checkpoint/checkpoint.hpp"
#include "runtime/support/error.hpp"

#include <algorithm>
#include <cerrno>
#include <limits>
#include <system_error>

#include <sys/mman.h>

namespace troupe {

std::shared_ptr<packed_file> packed_file::open(const own_folder& folder, const std::string& name,
                                               std::shared_ptr<const packed_layout> layout, std::string& why) {
  why.clear();
  const auto file = folder.path() / name;
  try {
    const auto opened = folder.open(name);
    if (!opened) {
      if (errno != ENOENT)
        why = file.string() +
          (errno == EPERM || errno == ELOOP ? " is not a regular file of this user's alone"
                                            : " cannot be read: " + std::generic_category().message(errno));
      return nullptr;
    }
    auto map = std::make_unique<const mapped_file>(file, opened.get());
    why = layout->difference(map->bytes());
    if (!why.empty()) {
      why = file.string() + " " + why;
      return nullptr;
    }
    auto sums = layout->sums_of(map->bytes());
    if (sums.size() != layout->blocks()) {
      why = file.string() + " is damaged, in its checksums";
      return nullptr;
    }
    return std::make_shared<packed_file>(file, std::move(layout), std::move(map), std::move(sums));
  } catch (const failure& f) {
    why = f.what_failed().message;
    return nullptr;
  }
}

packed_file::packed_file(std::filesystem::path file, std::shared_ptr<const packed_layout> layout,
                         std::unique_ptr<const mapped_file> map, std::vector<std::uint64_t> sums)
  : file_(std::move(file)),
    layout_(std::move(layout)),
    map_(std::move(map)),
    sums_(std::move(sums)),
    compared_(new std::atomic<std::uint8_t>[layout_->blocks()]()) {
  // What is read by accesses, and not because it was asked for, comes in large pages, which kernels read faster. A
  // hint.
  if (const auto all = map_->bytes(); !all.empty())
    madvise(const_cast<std::byte*>(all.data()), all.size(), MADV_HUGEPAGE);
}

kernels::buffer packed_file::lend(const packed_place& place) {
  return {shared_from_this(), const_cast<std::byte*>(bytes_of(place).data())}; // kernels only read it
}

void packed_file::read(std::span<const packed_place> places, kernels::thread_pool& pool) const {
  struct block {
    std::span<const std::byte> bytes;
    std::size_t index;
  };
  std::vector<block> blocks;
  for (const auto& place : places)
    for (std::size_t i = 0; i < place.blocks(); ++i)
      if (const auto index = place.first_block + i; compared_[index].load(std::memory_order_acquire) == 0)
        blocks.push_back(
          {bytes_of(place).subspan(i * checksum::chunk, std::min(checksum::chunk, place.bytes - i * checksum::chunk)),
           index});
  if (blocks.empty())
    return;
  require_whole();
  constexpr auto none = std::numeric_limits<std::size_t>::max();
  std::atomic<std::size_t> damaged = none;
  std::atomic<bool> unreadable = false;
  pool.parallel_for(blocks.size(), [&](std::size_t i, int) {
    const auto& [bytes, index] = blocks[i];
    if (!map_->populate(bytes))
      unreadable = true;
    else if (layout_->sum_of(bytes) != sums_[index])
      damaged = index;
    else
      compared_[index].store(1, std::memory_order_release);
  });
  if (unreadable)
    refuse_reading();
  if (damaged != none)
    refuse_damage(damaged);
}

bool packed_file::was_read(const packed_place& place) const {
  const auto* first = compared_.get() + place.first_block;
  return std::all_of(first, first + place.blocks(),
                     [](const auto& c) { return c.load(std::memory_order_acquire) != 0; });
}

void packed_file::refuse_damage(std::size_t block) const {
  const auto [matrix, index] = layout_->matrix_of(block);
  if (map_->is_called(file_)) {
    std::error_code ignored;
    std::filesystem::remove(file_, ignored);
  }
  throw failure(errc::bad_file,
                file_.string() + " is damaged, in the matrix " + shown(matrix) + " (block " + std::to_string(index) +
                  " of 1 MiB): it was removed, and the next start packs the weights again");
}

void packed_file::refuse_reading() const {
  throw failure(errc::bad_file,
                file_.string() + " can no longer be read" +
                  (map_->is_whole() ? ": the disk reports an error" : ": it was truncated while in use"));
}

void packed_file::require_whole() const {
  if (!map_->is_whole())
    refuse_reading();
}

} // namespace troupe
