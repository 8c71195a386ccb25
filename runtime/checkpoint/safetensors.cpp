#include "runtime/checkpoint/safetensors.hpp"

#include "runtime/checkpoint/tensor_index.hpp"
#include "runtime/support/files/mapped_file.hpp"
#include "runtime/support/json/json.hpp"
#include "runtime/support/json/json_brief.hpp"
#include "runtime/support/json/not_a_model.hpp"

#include <algorithm>
#include <cstring>
#include <set>

namespace troupe {

namespace {

constexpr std::size_t length_bytes = 8;
constexpr std::size_t max_header_bytes = 100'000'000;

/// Reads one tensor's entry in the header; `fail` prefixes messages with the file and the tensor.
struct entry_reader {
  const std::string& file;
  std::string_view tensor;

  [[noreturn]] void fail(const std::string& message) const {
    throw failure(errc::bad_file, file + ": tensor " + shown(tensor) + ": " + message);
  }

  json::value member(json::value entry, std::string_view key) const {
    if (auto found = json::find(entry, key))
      return *found;
    fail("no " + shown(key) + " in its header entry");
  }

  std::vector<std::size_t> sizes(json::value entry, std::string_view key) const {
    json::array list;
    if (member(entry, key).get(list))
      fail(shown(key) + " must be an array, found " + std::string(json::kind_of(member(entry, key))));
    std::vector<std::size_t> result;
    for (json::value item : list) {
      std::uint64_t size = 0;
      if (item.get(size))
        fail(shown(key) + " must hold non-negative integers, found " + json_brief(item));
      result.push_back(size);
    }
    return result;
  }

  /// Type, shape and offset. The offset counts from the end of the header and is not checked yet.
  safetensors_entry read(json::value entry) const {
    if (!entry.is_object())
      fail("its header entry must be an object, found " + std::string(json::kind_of(entry)));
    safetensors_entry result;
    std::string_view type;
    if (member(entry, "dtype").get(type))
      fail("`dtype` must be a string, found " + std::string(json::kind_of(member(entry, "dtype"))));
    const auto known = parse_safetensors_type(type);
    if (!known)
      fail("unknown `dtype` " + shown(type));
    result.info.type = *known;
    result.info.shape = sizes(entry, "shape");
    std::size_t bytes = size_of(*known);
    for (std::size_t dimension : result.info.shape)
      if (__builtin_mul_overflow(bytes, dimension, &bytes))
        fail("the shape " + to_string(result.info.shape) + " has more elements than memory can hold");
    const auto offsets = sizes(entry, "data_offsets");
    if (offsets.size() != 2)
      fail("`data_offsets` must hold 2 numbers, found " + std::to_string(offsets.size()));
    if (offsets[0] > offsets[1])
      fail("`data_offsets` must be ordered, found " + to_string(offsets));
    if (offsets[1] - offsets[0] != bytes)
      fail("`data_offsets` span " + std::to_string(offsets[1] - offsets[0]) + " bytes, but " + std::string(type) + " " +
           to_string(result.info.shape) + " takes " + std::to_string(bytes));
    result.info.bytes = bytes;
    result.offset = offsets[0];
    return result;
  }
};

/// The tensors, ordered by offset, must cover `size` bytes without gap or overlap.
void check_cover(const safetensors_header& header, std::size_t size, const std::string& file) {
  std::vector<const safetensors_header::value_type*> ordered;
  for (const auto& item : header)
    ordered.push_back(&item);
  // An empty tensor may share its offset with the one that follows it.
  std::ranges::sort(ordered, {}, [](auto* item) { return std::pair(item->second.offset, item->second.info.bytes); });
  std::size_t end = 0;
  for (const auto* item : ordered) {
    const auto& [name, entry] = *item;
    const entry_reader reader{file, name};
    if (entry.offset < end)
      reader.fail("its bytes begin at " + std::to_string(entry.offset) + ", inside another tensor that ends at " +
                  std::to_string(end));
    if (entry.offset > end)
      reader.fail("its bytes begin at " + std::to_string(entry.offset) + ", leaving a hole after " +
                  std::to_string(end));
    if (entry.info.bytes > size - end)
      reader.fail("its bytes end at " + std::to_string(entry.offset + entry.info.bytes) + ", but the file holds " +
                  std::to_string(size) + " bytes of tensors (truncated?)");
    end += entry.info.bytes;
  }
  if (end != size)
    throw failure(errc::bad_file,
                  file + ": its tensors end at byte " + std::to_string(end) + " of the data, but " +
                    std::to_string(size) + " bytes are there");
}

} // namespace

safetensors_header read_safetensors_header(std::span<const std::byte> file, const std::string& name) {
  auto fail = [&](const std::string& message) { throw failure(errc::bad_file, name + ": " + message); };
  const std::string_view all(reinterpret_cast<const char*>(file.data()), file.size());
  check_fetched(all, name);
  if (file.size() < length_bytes)
    fail("not a safetensors file: " + std::to_string(file.size()) + " bytes, at least 8 expected");
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < length_bytes; ++i)
    length |= std::to_integer<std::uint64_t>(file[i]) << (8 * i);
  if (length > max_header_bytes)
    fail("not a safetensors file: a header of " + std::to_string(length) + " bytes, at most 100000000 expected");
  if (length > file.size() - length_bytes)
    fail("truncated: a header of " + std::to_string(length) + " bytes, but only " +
         std::to_string(file.size() - length_bytes) + " follow");
  const auto text = all.substr(length_bytes, length);
  if (!text.starts_with('{'))
    fail("not a safetensors file: its header does not begin with `{`");
  const auto document = json::document::parse(text, name + ": header");
  json::object root;
  if (document.root().get(root))
    fail("its header must be an object, found " + std::string(json::kind_of(document.root())));
  safetensors_header header;
  bool metadata = false;
  for (auto [key, value] : root) {
    if (key == "__metadata__") {
      json::object entries;
      if (std::exchange(metadata, true) || value.get(entries))
        fail("`__metadata__` must be there at most once, as an object of strings");
      for (auto [entry, text_value] : entries)
        if (!text_value.is_string())
          fail("`__metadata__`: " + shown(entry) + " must be a string, found " +
               std::string(json::kind_of(text_value)));
      continue;
    }
    header.emplace(key, entry_reader{name, key}.read(value));
  }
  const std::size_t data = length_bytes + length;
  check_cover(header, file.size() - data, name);
  for (auto& [_, entry] : header)
    entry.offset += data;
  return header;
}

namespace {

class safetensors_checkpoint final : public checkpoint {
public:
  explicit safetensors_checkpoint(const std::filesystem::path& folder) : folder_(folder) {
    const auto single = folder / "model.safetensors", index = folder / "model.safetensors.index.json";
    if (is_there(single))
      add(single);
    else if (is_there(index))
      add_index(index);
    else
      refuse_folder(folder, missing::weights);
  }

  std::string name() const override { return folder_.string(); }

  std::vector<std::string> tensors() const override { return names_in(tensors_); }

  const tensor_info* find(std::string_view tensor) const override {
    const auto found = tensors_.find(tensor);
    return found == tensors_.end() ? nullptr : &found->second.entry.info;
  }

  tensor_data read(std::string_view tensor) const override {
    const auto& [file, entry] = tensors_.at(std::string(tensor));
    const auto part = file->map.bytes().subspan(entry.offset, entry.info.bytes);
    file->map.prefetch(part);
    const auto alignment = size_of(entry.info.type);
    if (reinterpret_cast<std::uintptr_t>(part.data()) % alignment == 0)
      return {part.data(), [file = file, part](const void*) { file->map.release(part); }};
    // The format allows any offset, but kernels need aligned elements.
    std::shared_ptr<std::byte[]> copy(new std::byte[part.size()]);
    std::memcpy(copy.get(), part.data(), part.size());
    file->map.release(part);
    return copy;
  }

  void prefetch(std::string_view tensor) const override {
    const auto& [file, entry] = tensors_.at(std::string(tensor));
    file->map.prefetch(file->map.bytes().subspan(entry.offset, entry.info.bytes));
  }

  std::string where(std::string_view tensor) const override {
    const auto found = tensors_.find(tensor);
    return found == tensors_.end() ? name() : found->second.file->name;
  }

  std::vector<file_state> files() const override { return files_; }

private:
  struct shard {
    std::string name;
    mapped_file map;
    explicit shard(const std::filesystem::path& file) : name(file.string()), map(file) {}
  };

  struct located {
    std::shared_ptr<const shard> file;
    safetensors_entry entry;
  };

  using index_of_files = std::map<std::string, std::string>; // by tensor, the name of its file

  /// A tensor that an index places elsewhere is not this file's: some tools leave tied or older ones behind.
  void add(const std::filesystem::path& file, const index_of_files& placed = {}) {
    const auto opened = std::make_shared<const shard>(file);
    files_.push_back(opened->map.state());
    for (auto& [tensor, entry] : read_safetensors_header(opened->map.bytes(), opened->name)) {
      if (const auto found = placed.find(tensor); found != placed.end() && found->second != file.filename().string())
        continue;
      const auto [place, added] = tensors_.try_emplace(tensor, located{opened, entry});
      if (!added)
        throw failure(errc::bad_file,
                      opened->name + ": tensor " + shown(tensor) + " is also in " + place->second.file->name);
    }
  }

  void add_index(const std::filesystem::path& index) {
    const auto document = json::document::load(index, files::index);
    json::object map;
    const auto found = json::find(document.root(), "weight_map");
    if (!found || found->get(map))
      throw failure(errc::bad_file, index.string() + ": `weight_map` must be an object");
    index_of_files file_of;
    for (auto [tensor, value] : map) {
      std::string_view file;
      if (value.get(file))
        throw failure(errc::bad_file,
                      index.string() + ": the file of " + shown(tensor) + " must be a string, found " +
                        std::string(json::kind_of(value)));
      // Shards are beside their index; a path could name any file of the machine.
      if (file.empty() || file == "." || file == ".." || file.find_first_of(std::string_view("/\0", 2)) != file.npos)
        throw failure(errc::bad_file, index.string() + ": " + shown(file) + " is not the name of a file beside it");
      file_of.emplace(tensor, file);
    }
    std::set<std::string> opened;
    for (const auto& [_, file] : file_of)
      if (opened.insert(file).second)
        add(folder_ / file, file_of);
    for (const auto& [tensor, file] : file_of)
      if (!find(tensor))
        throw failure(errc::bad_file,
                      (folder_ / file).string() + ": lacks tensor " + shown(tensor) +
                        ", which the index says is there");
  }

  std::filesystem::path folder_;
  std::vector<file_state> files_;
  std::map<std::string, located, std::less<>> tensors_;
};

} // namespace

std::unique_ptr<checkpoint> open_safetensors(const std::filesystem::path& folder) {
  return std::make_unique<safetensors_checkpoint>(folder);
}

} // namespace troupe
