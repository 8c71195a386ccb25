#include "runtime/checkpoint/packed/packed_cache.hpp"

#include "kernels/cpu/thread_pool.hpp"
#include "runtime/checkpoint/packed/cache_folder.hpp"
#include "runtime/support/error.hpp"
#include "runtime/support/files/atomic_file.hpp"
#include "runtime/support/text/byte_size.hpp"

#include <algorithm>
#include <cstring>
#include <optional>
#include <thread>

namespace troupe {

namespace {

namespace fs = std::filesystem;

constexpr cached_kind packed_kind{".packed", packed_mark};

/// Models that are packed in a moment are not kept unless the user asks.
constexpr std::size_t least_kept = std::size_t(64) << 20;

/// Parts of a matrix as one stream, for its blocks.
void add_sums(const packed_layout& layout, std::span<const std::span<const std::byte>> parts, std::uint64_t* to) {
  std::vector<std::byte> block; // that begins in one part and ends in another
  for (auto part : parts)
    while (!part.empty()) {
      const auto bytes = std::min(part.size(), checksum::chunk - block.size());
      if (block.empty() && bytes == checksum::chunk) {
        *to++ = layout.sum_of(part.first(bytes));
      } else {
        block.insert(block.end(), part.begin(), part.begin() + static_cast<std::ptrdiff_t>(bytes));
        if (block.size() == checksum::chunk) {
          *to++ = layout.sum_of(block);
          block.clear();
        }
      }
      part = part.subspan(bytes);
    }
  if (!block.empty())
    *to = layout.sum_of(block);
}

/// Completes a file on a thread of its own.
struct completion {
  explicit completion(std::unique_ptr<atomic_file> file)
    : thread([file = std::move(file)] {
        try {
          file->commit();
        } catch (const failure&) { // the next start packs again
        }
      }) {}
  ~completion() { thread.join(); }
  completion(const completion&) = delete;
  completion& operator=(const completion&) = delete;

  std::thread thread;
};

} // namespace

packed_cache::packed_cache(packed_cache_options options, const packed_contents& contents, kernels::thread_pool& pool,
                           log_sink log)
  : options_(std::move(options)),
    pool_(pool),
    log_(std::move(log)),
    file_(packed_file_name(options_.folder, contents)) {
  if (!options_.asked && !options_.needed && contents.bytes() < least_kept)
    return;
  std::optional<own_folder> folder;
  try {
    folder.emplace(options_.folder);
    layout_ = std::make_shared<const packed_layout>(contents, folder->secret());
  } catch (const failure& f) {
    if (f.what_failed().code == errc::bad_request)
      refuse_field("packed_cache", "must be a folder, which " + options_.folder.string() + " is not");
    if (f.what_failed().code != errc::bad_file)
      throw;
    give_up(f.what_failed().message);
    return;
  }
  open(*folder);
  if (!kept_)
    begin(*folder, contents);
}

packed_cache::~packed_cache() = default;

weight_home packed_cache::home_of(std::string_view name) const {
  return options_.home ? options_.home(name) : weight_home::found;
}

void packed_cache::give_up(const std::string& why) {
  writing_ = nullptr;
  if (options_.needed)
    throw failure(errc::out_of_memory,
                  "weights that are mapped (`weights`) are read from a file, which cannot be kept: " + why, "weights");
  if (options_.asked)
    log_(warning("packed weights are not kept: " + why));
}

void packed_cache::open(const own_folder& folder) {
  std::string why;
  kept_ = packed_file::open(folder, file_.filename().string(), layout_, why);
  if (kept_) {
    mark_used(file_);
    log_("packed weights come from " + file_.string());
  } else if (!why.empty()) {
    log_(warning(why + "; weights are packed again"));
  }
}

void packed_cache::begin(const own_folder& folder, const packed_contents& contents) {
  const auto why = make_room(folder, file_.filename().string(), packed_kind, layout_->bytes(),
                             {options_.most_bytes, !options_.asked && !options_.needed});
  if (!why.empty())
    return give_up(why);
  try {
    writing_ = atomic_file::begin(file_, layout_->bytes());
    if (!writing_)
      return give_up("another process is writing " + file_.string());
    if (options_.needed && std::ranges::any_of(contents.matrices, [&](const packed_entry& m) {
          return home_of(m.name) == weight_home::file;
        }))
      kept_ = std::make_shared<packed_file>(
        file_, layout_, std::make_unique<const mapped_file>(options_.folder, writing_->descriptor()),
        std::vector<std::uint64_t>());
    sums_.resize(layout_->blocks());
    log_("packed weights will be kept in " + file_.string());
  } catch (const failure& f) {
    give_up(f.what_failed().message);
  }
}

kernels::buffer packed_cache::find(std::string_view name) {
  if (!kept_ || writing_)
    return nullptr;
  const auto place = layout_->place_of(name);
  if (home_of(name) != weight_home::memory) {
    mapped_.emplace(name);
    return kept_->lend(place);
  }
  try {
    kept_->read({&place, 1}, pool_);
  } catch (const failure& f) {
    if (options_.needed || !mapped_.empty())
      throw;
    log_(warning(f.what_failed().message));
    kept_ = nullptr; // the rest is packed
    return nullptr;
  }
  const auto from = kept_->lend(place);
  const std::span<const std::byte> all(static_cast<const std::byte*>(from.get()), place.bytes);
  auto copy = copy_of({&all, 1});
  if (options_.needed)
    kept_->drop(place); // it would be in memory twice
  else
    kept_->release(place);
  return copy;
}

kernels::buffer packed_cache::copy_of(std::span<const std::span<const std::byte>> parts) {
  std::size_t bytes = 0;
  for (const auto& part : parts)
    bytes += part.size();
  auto copy = memory_.allocate(bytes);
  auto* to = static_cast<std::byte*>(copy.get());
  for (const auto& part : parts) {
    pool_.parallel_for((part.size() + checksum::chunk - 1) / checksum::chunk, [&](std::size_t i, int) {
      const auto first = i * checksum::chunk;
      std::memcpy(to + first, part.data() + first, std::min(checksum::chunk, part.size() - first));
    });
    to += part.size();
  }
  return copy;
}

kernels::buffer packed_cache::add(std::string_view name, std::span<const std::span<const std::byte>> parts) {
  if (!writing_)
    return nullptr;
  const auto place = layout_->place_of(name);
  std::size_t found = 0;
  for (const auto& part : parts)
    found += part.size();
  if (found != place.bytes)
    throw failure(errc::internal,
                  "the packed matrix " + std::string(name) + " has " + std::to_string(found) + " bytes, expected " +
                    std::to_string(place.bytes));
  try {
    add_sums(*layout_, parts, sums_.data() + place.first_block);
    auto offset = place.offset;
    for (const auto& part : parts) {
      writing_->write(offset, part);
      offset += part.size();
    }
    ++added_;
  } catch (const failure& f) {
    kept_ = nullptr;
    give_up(f.what_failed().message);
    return nullptr;
  }
  if (!kept_)
    return nullptr;
  // Packed matrices share memory, which would stay with those that go to the file.
  if (home_of(name) != weight_home::file)
    return copy_of(parts);
  mapped_.emplace(name);
  return kept_->lend(place);
}

std::shared_ptr<const void> packed_cache::finish() {
  if (!writing_)
    return nullptr;
  if (added_ != layout_->matrices())
    throw failure(errc::internal,
                  std::to_string(added_) + " matrices were packed, expected " + std::to_string(layout_->matrices()));
  try {
    const auto sums = layout_->sealed(sums_);
    writing_->write(layout_->head().size(), std::as_bytes(std::span(sums)));
    writing_->write(0, std::as_bytes(std::span(layout_->head())));
    if (kept_)
      kept_->finish(sums_);
    if (!options_.asked && !options_.needed)
      return std::make_shared<const completion>(std::move(writing_));
    writing_->commit();
    log_("packed weights, " + to_size(layout_->bytes()) + ", are kept in " + file_.string());
    writing_ = nullptr;
  } catch (const failure& f) {
    give_up(f.what_failed().message);
  }
  return nullptr;
}

} // namespace troupe
