#include "runtime/checkpoint/gguf_writer.hpp"

#include "runtime/support/files/atomic_file.hpp"

#include <bit>

namespace troupe {

namespace {

static_assert(std::endian::native == std::endian::little); // like the files

constexpr std::size_t alignment = 32;

/// ggml's number for a type.
std::uint32_t number_of(tensor_type type) {
  const auto format = type.format();
  const int number = format ? kernels::traits_of(*format).ggml_type : -1;
  if (number < 0)
    throw failure(errc::internal, "GGUF has no tensors of type " + std::string(to_string(type)));
  return static_cast<std::uint32_t>(number);
}

template <class T>
void pack(std::string& to, T value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void pack(std::string& to, std::string_view text) {
  pack(to, std::uint64_t{text.size()});
  to += text;
}

std::size_t padding(std::size_t bytes) { return (alignment - bytes % alignment) % alignment; }

std::size_t bytes_of(tensor_type type, const std::vector<std::size_t>& shape) {
  auto bytes = kernels::row_bytes(*weight_format_of(type), shape.back());
  for (std::size_t i = 0; i + 1 < shape.size(); ++i)
    bytes *= shape[i];
  return bytes;
}

} // namespace

void gguf_writer::begin(std::string_view key, gguf_type type) {
  pack(keys_, key);
  pack(keys_, type);
  ++key_count_;
}

void gguf_writer::begin_array(std::string_view key, gguf_type element, std::size_t count) {
  begin(key, gguf_type::array);
  pack(keys_, element);
  pack(keys_, std::uint64_t{count});
}

void gguf_writer::add_scalar(std::string_view key, gguf_type type, const void* value, std::size_t bytes) {
  begin(key, type);
  keys_.append(static_cast<const char*>(value), bytes);
}

void gguf_writer::add(std::string_view key, std::string_view value) {
  begin(key, gguf_type::string);
  pack(keys_, value);
}

void gguf_writer::add(std::string_view key, const std::vector<std::string>& values) {
  begin_array(key, gguf_type::string, values.size());
  for (const auto& value : values)
    pack(keys_, std::string_view(value));
}

void gguf_writer::add(std::string_view key, const std::vector<float>& values) {
  begin_array(key, gguf_type::f32, values.size());
  for (const auto value : values)
    pack(keys_, value);
}

void gguf_writer::add(std::string_view key, const std::vector<std::int32_t>& values) {
  begin_array(key, gguf_type::i32, values.size());
  for (const auto value : values)
    pack(keys_, value);
}

void gguf_writer::add(std::string_view key, const gguf_value& value) {
  const std::string_view bytes(reinterpret_cast<const char*>(value.bytes.data()), value.bytes.size());
  if (value.type == gguf_type::string)
    return add(key, bytes);
  if (value.type == gguf_type::array)
    begin_array(key, value.element, value.count);
  else
    begin(key, value.type);
  keys_ += bytes;
}

void gguf_writer::add_tensor(std::string name, tensor_type type, std::vector<std::size_t> shape) {
  const auto bytes = bytes_of(type, shape);
  tensors_.push_back({std::move(name), {type, std::move(shape), bytes}});
}

std::size_t gguf_writer::tensor_bytes() const {
  std::size_t bytes = 0;
  for (const auto& t : tensors_)
    bytes += t.info.bytes;
  return bytes;
}

std::string gguf_writer::head() const {
  constexpr std::uint32_t version = 3;
  std::string head = "GGUF";
  pack(head, version);
  pack(head, std::uint64_t{tensors_.size()});
  pack(head, key_count_);
  head += keys_;
  std::size_t offset = 0;
  for (const auto& [name, info] : tensors_) {
    pack(head, std::string_view(name));
    pack(head, static_cast<std::uint32_t>(info.shape.size()));
    for (auto size = info.shape.rbegin(); size != info.shape.rend(); ++size)
      pack(head, std::uint64_t{*size});
    pack(head, number_of(info.type));
    pack(head, std::uint64_t{offset});
    offset += info.bytes + padding(info.bytes);
  }
  head.append(padding(head.size()), '\0');
  return head;
}

void gguf_writer::write(const std::filesystem::path& file, const tensor_bytes_fn& bytes_of_tensor) const {
  const auto head = this->head();
  auto size = head.size();
  for (const auto& t : tensors_)
    size += t.info.bytes + padding(t.info.bytes);
  const auto to = atomic_file::begin(file, size); // bytes that are not written are zeros, and so is the padding
  if (!to)
    throw failure(errc::bad_file, file.string() + ": another process is writing it");
  to->write(0, std::as_bytes(std::span(head)));
  auto offset = head.size();
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const auto& info = tensors_[i].info;
    const auto bytes = bytes_of_tensor(i);
    if (bytes.size() != info.bytes)
      throw failure(errc::internal, "GGUF writer: tensor " + shown(tensors_[i].name) + " does not fill its place");
    to->write(offset, bytes);
    offset += info.bytes + padding(info.bytes);
  }
  to->commit();
}

} // namespace troupe
