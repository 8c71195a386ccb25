#include "runtime/checkpoint/packed/packed_layout.hpp"

#include "runtime/support/error.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace troupe {

namespace {

constexpr std::string_view packed_magic = "troupe packed weights 5\n";
static_assert(packed_magic.starts_with(packed_mark));
constexpr std::size_t packed_page = 4096;

std::size_t whole_pages(std::size_t bytes) { return (bytes + packed_page - 1) / packed_page * packed_page; }

/// A hash that is the same in every process, unlike std::hash.
std::string hash_of(std::string_view text) {
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

std::string head_of(const packed_contents& contents) {
  std::string head(packed_magic);
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

} // namespace

std::size_t packed_contents::bytes() const {
  std::size_t sum = 0;
  for (const auto& matrix : matrices)
    sum += matrix.bytes;
  return sum;
}

packed_layout::packed_layout(const packed_contents& contents, const own_folder::secret_bytes& secret)
  : head_(head_of(contents)), secret_(secret) {
  for (const auto& [name, bytes] : contents.matrices) {
    packed_place place{.offset = 0, .bytes = bytes, .first_block = blocks_};
    blocks_ += place.blocks();
    if (!places_.emplace(name, place).second)
      throw failure(errc::internal, "two packed matrices are called " + name);
  }
  bytes_ = head_.size() + whole_pages((blocks_ + 1) * sizeof(std::uint64_t));
  for (const auto& [name, bytes] : contents.matrices) {
    places_.find(name)->second.offset = bytes_;
    bytes_ += whole_pages(bytes);
  }
}

packed_place packed_layout::place_of(std::string_view matrix) const {
  const auto found = places_.find(matrix);
  if (found == places_.end())
    throw failure(errc::internal, "no packed matrix is called " + std::string(matrix));
  return found->second;
}

std::pair<std::string, std::size_t> packed_layout::matrix_of(std::size_t block) const {
  for (const auto& [name, place] : places_)
    if (block >= place.first_block && block - place.first_block < place.blocks())
      return {name, block - place.first_block};
  throw failure(errc::internal, "no packed matrix has block " + std::to_string(block));
}

std::string packed_layout::difference(std::span<const std::byte> file) const {
  const std::string_view found(reinterpret_cast<const char*>(file.data()), std::min(file.size(), head_.size()));
  const auto at = static_cast<std::size_t>(std::ranges::mismatch(found, head_).in1 - found.begin());
  const auto version = packed_magic.size() - 2; // position of the version in the magic
  if (at < std::min(found.size(), version) || found.empty())
    return "is not a file of packed weights";
  if (at < found.size()) {
    const auto line = std::string_view(head_).substr(head_.rfind('\n', at - 1) + 1);
    return at < packed_magic.size() || line.starts_with("layout ") ? "was made by another version of this program"
      : line.starts_with("file ")                                  ? "was made of the model's files before they changed"
                                                                   : "is damaged";
  }
  if (file.size() != bytes_)
    return "has " + std::to_string(file.size()) + " bytes, expected " + std::to_string(bytes_);
  return {};
}

std::vector<std::uint64_t> packed_layout::sums_of(std::span<const std::byte> file) const {
  std::vector<std::uint64_t> sums(blocks_ + 1);
  std::memcpy(sums.data(), file.data() + head_.size(), sums.size() * sizeof sums[0]);
  const auto own = sums.back();
  sums.pop_back();
  return own == sum_of(std::as_bytes(std::span(sums))) ? sums : std::vector<std::uint64_t>();
}

std::vector<std::uint64_t> packed_layout::sealed(std::vector<std::uint64_t> sums) const {
  sums.push_back(sum_of(std::as_bytes(std::span(sums))));
  return sums;
}

std::filesystem::path packed_file_name(const std::filesystem::path& folder, const packed_contents& contents) {
  std::string identity = contents.precision + "\n" + contents.target + "\n";
  for (const auto& file : contents.files)
    identity += file.path.string() + "\n";
  return folder / (readable(contents.model) + "-" + hash_of(identity) + ".packed");
}

} // namespace troupe
