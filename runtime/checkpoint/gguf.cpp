#include "runtime/checkpoint/gguf.hpp"

#include "runtime/checkpoint/gguf_values.hpp"
#include "runtime/support/files/file_reading.hpp"
#include "runtime/support/text/utf8.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace troupe {

namespace {

using namespace gguf_values;

constexpr int deepest_nesting = 4; // arrays in arrays
constexpr std::uint32_t max_dimensions = 4;
constexpr std::uint64_t default_alignment = 32, max_alignment = 1 << 20;

/// The name of a tensor type that is not supported by its number in files, for messages.
std::string unsupported_name(std::uint32_t number) {
  constexpr std::pair<std::uint32_t, std::string_view> names[] = {
    {4, "Q4_2"},      {5, "Q4_3"},      {9, "Q8_1"},        {15, "Q8_K"},       {24, "I8"},
    {25, "I16"},      {26, "I32"},      {27, "I64"},        {28, "F64"},        {31, "Q4_0_4_4"},
    {32, "Q4_0_4_8"}, {33, "Q4_0_8_8"}, {36, "IQ4_NL_4_4"}, {37, "IQ4_NL_4_8"}, {38, "IQ4_NL_8_8"}};
  static_assert(std::ranges::none_of(names, [](auto& name) {
    return std::ranges::any_of(kernels::weight_formats,
                               [&](auto& f) { return f.ggml_type == static_cast<int>(name.first); });
  }));
  const auto* const found = std::ranges::find(names, number, &std::pair<std::uint32_t, std::string_view>::first);
  return found != std::end(names) ? std::string(found->second) : "the unknown type " + std::to_string(number);
}

/// "F32, F16 and Q8_0": the tensor types that can be read.
std::string supported_names() {
  std::vector<std::string_view> names;
  for (const auto& format : kernels::weight_formats)
    if (format.ggml_type >= 0)
      names.emplace_back(format.name_in_files);
  std::string list;
  for (std::size_t i = 0; i < names.size(); ++i)
    list += (i == 0 ? "" : i + 1 < names.size() ? ", " : " and ") + std::string(names[i]);
  return list;
}

/// A cursor over a file; `fail` prefixes messages with its name.
class reader {
public:
  reader(std::span<const std::byte> file, const std::string& name) : file_(file), name_(name) {}

  [[noreturn]] void fail(const std::string& message, errc code = errc::bad_file) const {
    throw failure(code, name_ + ": " + message);
  }

  std::size_t position() const { return position_; }
  std::size_t left() const { return file_.size() - position_; }

  /// Consumes `count` bytes; messages call them `what`.
  std::span<const std::byte> consume(std::uint64_t count, const std::string& what) {
    if (count > left())
      fail("truncated: " + what + " takes " + std::to_string(count) + " bytes from byte " + std::to_string(position_) +
           ", but only " + std::to_string(left()) + " are left");
    const auto part = file_.subspan(position_, count);
    position_ += count;
    return part;
  }

  template <class T>
  T number(const std::string& what) {
    return load<T>(consume(sizeof(T), what).data());
  }

  std::span<const std::byte> string(const std::string& what) {
    if (left() < sizeof(std::uint64_t)) // sentences are made only to be told: files have millions of strings
      consume(sizeof(std::uint64_t), "the length of " + what);
    return consume(number<std::uint64_t>(what), what);
  }

  /// A name in valid UTF-8.
  std::string_view name(const std::string& what) {
    const auto text = text_of(string(what));
    if (!is_utf8(text))
      fail(what + " is not valid UTF-8");
    return text;
  }

  gguf_type type(const std::string& what) {
    const auto number = this->number<std::uint32_t>("the type of " + what);
    if (number > static_cast<std::uint32_t>(gguf_type::f64))
      fail(what + " has the unknown type " + std::to_string(number) + ", types from 0 to 12 are known");
    return static_cast<gguf_type>(number);
  }

  gguf_value value(gguf_type type, const std::string& what, int depth = 0) {
    gguf_value result{type, {}, gguf_type::u8, 0};
    if (type == gguf_type::string) {
      result.bytes = string(what);
    } else if (type == gguf_type::array) {
      if (depth == deepest_nesting)
        fail(what + " nests arrays more than " + std::to_string(deepest_nesting) + " deep");
      result.element = this->type("the elements of " + what);
      result.count = number<std::uint64_t>("the length of " + what);
      const std::size_t begin = position_;
      if (const auto size = size_of(result.element)) {
        if (result.count > left() / size)
          fail(what + " has " + std::to_string(result.count) + " elements of " + std::to_string(size) +
               " bytes, but only " + std::to_string(left()) + " bytes are left");
        consume(result.count * size, what);
      } else {
        // Each element consumes at least these bytes: a false count fails at once, or at the end of the file.
        const auto least = result.element == gguf_type::string ? sizeof(std::uint64_t) : sizeof(std::uint32_t);
        if (result.count > left() / least)
          fail(what + " has " + std::to_string(result.count) + " elements, but only " + std::to_string(left()) +
               " bytes are left");
        for (std::uint64_t i = 0; i < result.count; ++i)
          value(result.element, what, depth + 1);
      }
      result.bytes = file_.subspan(begin, position_ - begin);
    } else {
      result.bytes = consume(size_of(type), what);
      if (type == gguf_type::boolean && std::to_integer<int>(result.bytes[0]) > 1)
        fail(what + " is a boolean of value " + std::to_string(std::to_integer<int>(result.bytes[0])) +
             ", expected 0 or 1");
    }
    return result;
  }

  gguf_tensor tensor(const std::string& what) {
    gguf_tensor result;
    const auto dimensions = number<std::uint32_t>("the number of dimensions of " + what);
    if (dimensions < 1 || dimensions > max_dimensions)
      fail(what + " has " + std::to_string(dimensions) + " dimensions, expected 1 to 4");
    for (std::uint32_t i = 0; i < dimensions; ++i)
      result.info.shape.insert(result.info.shape.begin(), number<std::uint64_t>("the shape of " + what));
    const auto type = number<std::uint32_t>("the type of " + what);
    const auto format = kernels::format_of_ggml_type(type);
    if (!format)
      fail(what + " is stored as " + unsupported_name(type) + ", supported are " + supported_names(),
           errc::unsupported);
    result.info.type = *format;
    result.info.bytes = bytes(result.info, what);
    result.offset = number<std::uint64_t>("the offset of " + what);
    return result;
  }

private:
  std::size_t bytes(const tensor_info& info, const std::string& what) const {
    const auto format = *weight_format_of(info.type); // every known type has one
    const std::size_t per_block = kernels::block_inputs(format);
    std::size_t total = kernels::block_bytes(format);
    if (info.shape.back() % per_block != 0)
      fail(what + " has rows of " + std::to_string(info.shape.back()) + " weights, expected a multiple of the " +
           std::to_string(per_block) + " in a block of " + std::string(to_string(info.type)));
    for (std::size_t i = 0; i < info.shape.size(); ++i) {
      const auto count = i + 1 == info.shape.size() ? info.shape[i] / per_block : info.shape[i];
      if (__builtin_mul_overflow(total, count, &total))
        fail(what + " has the shape " + to_string(info.shape) + ", which is more than memory can hold");
    }
    return total;
  }

  std::span<const std::byte> file_;
  const std::string& name_;
  std::size_t position_ = 0;
};

/// Checks the tensors' offsets, which count from the start of the data, and makes them count from the start of the
/// file.
void place_tensors(gguf_content& content, std::uint64_t alignment, const reader& at, std::size_t size) {
  const std::uint64_t data = (at.position() + alignment - 1) / alignment * alignment;
  std::vector<std::pair<gguf_tensor*, const std::string*>> ordered;
  for (auto& [name, tensor] : content.tensors)
    ordered.emplace_back(&tensor, &name);
  // An empty tensor may share its offset with another.
  std::ranges::sort(ordered, {}, [](const auto& t) { return std::pair(t.first->offset, t.first->info.bytes); });
  const std::size_t there = size > data ? size - data : 0;
  std::size_t end = 0;
  for (auto& [tensor, name] : ordered) {
    const auto what = "tensor " + shown(*name);
    if (tensor->offset % alignment != 0)
      at.fail(what + " begins at " + std::to_string(tensor->offset) + ", expected a multiple of " +
              std::to_string(alignment));
    if (tensor->offset > there || tensor->info.bytes > there - tensor->offset)
      at.fail(what + " takes " + std::to_string(tensor->info.bytes) + " bytes from " + std::to_string(tensor->offset) +
              ", but the file holds " + std::to_string(there) + " bytes of tensors (truncated?)");
    if (tensor->offset < end)
      at.fail(what + " begins at " + std::to_string(tensor->offset) + ", inside another tensor that ends at " +
              std::to_string(end));
    end = tensor->offset + tensor->info.bytes;
    tensor->offset += data;
  }
}

} // namespace

gguf_content read_gguf(std::span<const std::byte> file, const std::string& name, gguf_part part) {
  check_fetched(text_of(file), name);
  reader in(file, name);
  constexpr std::string_view magic = "GGUF";
  if (file.size() < magic.size() || text_of(file.first(magic.size())) != magic)
    in.fail("not a GGUF file: it does not begin with `GGUF`");
  in.consume(magic.size(), "the magic");
  const auto version = in.number<std::uint32_t>("the version");
  if (version != 2 && version != 3) {
    const bool swapped = version == 2u << 24 || version == 3u << 24;
    in.fail(swapped ? "its numbers are big-endian, only little-endian files are supported"
                    : "its version is " + std::to_string(version) + ", supported are 2 and 3",
            errc::unsupported);
  }
  const auto tensors = in.number<std::uint64_t>("the number of tensors");
  const auto keys = in.number<std::uint64_t>("the number of metadata keys");
  gguf_content result{gguf_metadata(name), {}};
  for (std::uint64_t i = 0; i < keys; ++i) {
    const auto key = in.name("metadata key " + std::to_string(i) + " of " + std::to_string(keys));
    const auto what = shown(key);
    if (!result.metadata.add(key, in.value(in.type(what), what)))
      in.fail(what + " is there twice");
  }
  if (part == gguf_part::metadata)
    return result;
  constexpr std::string_view alignment_key = "general.alignment";
  const auto alignment = static_cast<std::uint64_t>(
    result.metadata.integer(alignment_key, 8, max_alignment).value_or(default_alignment));
  if ((alignment & (alignment - 1)) != 0)
    in.fail(shown(alignment_key) + " must be a power of 2, found " + std::to_string(alignment));
  for (std::uint64_t i = 0; i < tensors; ++i) {
    const std::string tensor(in.name("the name of tensor " + std::to_string(i) + " of " + std::to_string(tensors)));
    if (!result.tensors.emplace(tensor, in.tensor("tensor " + shown(tensor))).second)
      in.fail("tensor " + shown(tensor) + " is there twice");
  }
  place_tensors(result, alignment, in, file.size());
  return result;
}

} // namespace troupe
