#include "runtime/checkpoint/packed_cache.hpp"

#include "kernels/cpu/thread_pool.hpp"
#include "runtime/checkpoint/checkpoint.hpp"
#include "runtime/support/atomic_file.hpp"
#include "runtime/support/byte_size.hpp"
#include "runtime/support/checksum.hpp"
#include "runtime/support/error.hpp"
#include "runtime/support/mapped_file.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>

namespace troupe {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view magic = "troupe packed weights 3\n";
constexpr std::size_t page = 4096;

std::size_t whole_pages(std::size_t bytes) { return (bytes + page - 1) / page * page; }

/// The same in every process, unlike std::hash.
std::string hash(std::string_view text) {
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx",
                static_cast<unsigned long long>(checksum::of_chunk(std::as_bytes(std::span(text)))));
  return digits;
}

/// The model's name as part of a file name, for people who look into the folder.
std::string readable(std::string_view model) {
  std::string name(model.substr(0, 80));
  std::ranges::replace_if(
    name, [](unsigned char c) { return c <= ' ' || c >= 0x7f || c == '/'; }, '_');
  return name;
}

fs::path file_of(const fs::path& folder, const packed_contents& contents) {
  std::string identity = contents.precision + "\n" + contents.target + "\n";
  for (const auto& file : contents.files)
    identity += file.path.string() + "\n";
  return folder / (readable(contents.model) + "-" + hash(identity) + ".packed");
}

std::string head_of(const packed_contents& contents) {
  std::string head(magic);
  head += "numbers " + contents.precision + "\ntarget " + contents.target + "\nlayout " +
    std::to_string(contents.layout) + "\n";
  for (const auto& file : contents.files)
    head += "file " + std::to_string(file.bytes) + " " + std::to_string(file.modified_ns) + " " +
      std::to_string(file.changed_ns) + " " + file.path.string() + "\n";
  for (const auto& matrix : contents.matrices)
    head += "matrix " + std::to_string(matrix.bytes) + " " + matrix.name + "\n";
  head += "end\n";
  head.resize(whole_pages(head.size()), '\0');
  return head;
}

/// Returns false, with the reason, if it neither exists nor can be created. Throws failure(bad_request) if it is a
/// file.
bool make_folder(const fs::path& folder, std::string& why) {
  std::error_code error, ignored;
  fs::create_directories(folder, error);
  if (fs::is_directory(folder, ignored))
    return true;
  if (fs::exists(folder, ignored) || error == std::errc::not_a_directory)
    throw failure(errc::bad_request, "`packed_cache` must be a folder, which " + folder.string() + " is not",
                  "packed_cache");
  why = folder.string() + ": cannot be created: " + error.message();
  return false;
}

} // namespace

packed_cache::packed_cache(const fs::path& folder, const packed_contents& contents, kernels::thread_pool& pool,
                           log_sink log)
  : log_(std::move(log)), file_(file_of(folder, contents)) {
  lay_out(contents);
  std::string why;
  if (!make_folder(folder, why)) {
    log_("packed weights are not kept: " + why);
    return;
  }
  why = open(pool);
  if (kept_) {
    log_("packed weights come from " + file_.string());
    return;
  }
  if (!why.empty())
    log_(why + "; weights are packed again");
  begin();
}

packed_cache::~packed_cache() = default;

void packed_cache::lay_out(const packed_contents& contents) {
  head_ = head_of(contents);
  sums_.resize(contents.matrices.size());
  bytes_ = head_.size() + whole_pages(sums_.size() * sizeof sums_[0]);
  for (const auto& [name, bytes] : contents.matrices) {
    if (!places_.emplace(name, place{bytes_, bytes, places_.size()}).second)
      throw failure(errc::internal, "two packed matrices are called " + name);
    bytes_ += whole_pages(bytes);
  }
}

/// Returns why an existing file cannot be used; empty otherwise.
std::string packed_cache::open(kernels::thread_pool& pool) {
  try {
    kept_ = std::make_shared<const mapped_file>(file_);
  } catch (const failure& f) {
    return f.what_failed().code == errc::not_found ? "" : f.what_failed().message;
  }
  auto why = difference();
  if (why.empty())
    why = damage(pool);
  if (!why.empty()) {
    kept_ = nullptr;
    why = file_.string() + " " + why;
  }
  return why;
}

/// Compares the mapped file with the expected contents. Returns what differs; empty if nothing does.
std::string packed_cache::difference() const {
  const auto bytes = kept_->bytes();
  const std::string_view found(reinterpret_cast<const char*>(bytes.data()), std::min(bytes.size(), head_.size()));
  const auto at = static_cast<std::size_t>(std::ranges::mismatch(found, head_).in1 - found.begin());
  const auto version = magic.size() - 2; // position of the version in the magic
  if (at < std::min(found.size(), version) || found.empty())
    return "is not a file of packed weights";
  if (at < found.size()) {
    const auto line = std::string_view(head_).substr(head_.rfind('\n', at - 1) + 1);
    return at < magic.size() || line.starts_with("layout ") ? "was made by another version of this program"
      : line.starts_with("file ")                           ? "was made of the model's files before they changed"
                                                            : "is damaged";
  }
  if (bytes.size() != bytes_)
    return "has " + std::to_string(bytes.size()) + " bytes, expected " + std::to_string(bytes_);
  return {};
}

/// Reads all matrices and compares their checksums. Returns what is wrong; empty if nothing is.
std::string packed_cache::damage(kernels::thread_pool& pool) const {
  struct chunk {
    std::span<const std::byte> bytes;
    std::uint64_t sum = 0;
    bool read = false;
  };
  std::vector<chunk> chunks;
  for (const auto& [name, place] : places_)
    for (std::size_t at = 0; at < place.bytes; at += checksum::chunk)
      chunks.push_back({kept_->bytes().subspan(place.offset + at, std::min(checksum::chunk, place.bytes - at))});
  pool.parallel_for(chunks.size(), [&](std::size_t index, int) {
    auto& c = chunks[index];
    c.read = kept_->populate(c.bytes);
    if (c.read)
      c.sum = checksum::of_chunk(c.bytes);
  });
  auto c = chunks.begin();
  for (const auto& [name, place] : places_) {
    checksum found;
    for (std::size_t at = 0; at < place.bytes; at += checksum::chunk, ++c) {
      if (!c->read)
        return "cannot be read";
      found.add_chunk(c->sum);
    }
    std::uint64_t expected;
    std::memcpy(&expected, kept_->bytes().data() + head_.size() + place.index * sizeof expected, sizeof expected);
    if (found.value() != expected)
      return "is damaged, in the matrix " + shown(name);
  }
  return {};
}

void packed_cache::begin() {
  try {
    writing_ = atomic_file::begin(file_, bytes_);
    log_(writing_ ? "packed weights will be kept in " + file_.string()
                  : "packed weights are not kept: another process is writing " + file_.string());
  } catch (const failure& f) {
    log_("packed weights are not kept: " + f.what_failed().message);
  }
}

packed_cache::place packed_cache::place_of(std::string_view name) const {
  const auto found = places_.find(name);
  if (found == places_.end())
    throw failure(errc::internal, "no packed matrix is called " + std::string(name));
  return found->second;
}

kernels::buffer packed_cache::find(std::string_view name) {
  if (!kept_)
    return nullptr;
  const auto [offset, bytes, index] = place_of(name);
  const auto part = kept_->bytes().subspan(offset, bytes);
  return {kept_, const_cast<std::byte*>(part.data())}; // kernels only read it
}

void packed_cache::add(std::string_view name, std::span<const std::span<const std::byte>> parts) {
  if (!writing_)
    return;
  auto [offset, bytes, index] = place_of(name);
  std::size_t found = 0;
  for (const auto& part : parts)
    found += part.size();
  if (found != bytes)
    throw failure(errc::internal,
                  "the packed matrix " + std::string(name) + " has " + std::to_string(found) + " bytes, expected " +
                    std::to_string(bytes));
  try {
    checksum sum;
    for (const auto& part : parts) {
      sum.add(part);
      writing_->write(offset, part);
      offset += part.size();
    }
    sums_[index] = sum.value();
    ++added_;
  } catch (const failure& f) {
    writing_ = nullptr;
    log_("packed weights are not kept: " + f.what_failed().message);
  }
}

void packed_cache::finish() {
  if (!writing_)
    return;
  if (added_ != places_.size())
    throw failure(errc::internal,
                  std::to_string(added_) + " matrices were packed, expected " + std::to_string(places_.size()));
  try {
    writing_->write(head_.size(), std::as_bytes(std::span(sums_)));
    writing_->write(0, std::as_bytes(std::span(head_)));
    writing_->commit();
    log_("packed weights, " + to_size(bytes_) + ", are kept in " + file_.string());
  } catch (const failure& f) {
    log_("packed weights are not kept: " + f.what_failed().message);
  }
  writing_ = nullptr;
}

} // namespace troupe
