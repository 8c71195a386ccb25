#include "runtime/checkpoint/arranged_checkpoint.hpp"

#include "runtime/checkpoint/tensor_index.hpp"
#include "runtime/checkpoint/weight_values.hpp"
#include "runtime/support/error.hpp"

#include <algorithm>
#include <cstring>
#include <set>

namespace troupe {

namespace {

/// A presented tensor: its shape, and the stored one as rows of bytes.
struct arranged_tensor {
  stored_part part;
  tensor_info info;
  std::size_t stored_rows = 0;  // of the slice, before transposition
  std::size_t stored_bytes = 0; // of one of its rows
};

class arranged_checkpoint final : public checkpoint {
public:
  arranged_checkpoint(std::unique_ptr<const checkpoint> stored, const arrangement& how) : stored_(std::move(stored)) {
    for (const auto& [name, part] : how.tensors)
      wanted_.emplace(name, part.name);
    std::set<std::string, std::less<>> used;
    for (const auto& [name, part] : how.tensors) {
      used.insert(part.name);
      if (const auto* info = stored_->find(part.name))
        tensors_.emplace(name, describe(part, *info));
    }
    for (const auto& name : stored_->tensors())
      if (!used.contains(name) && !how.tensors.contains(name)) {
        const auto [other, added] = others_.emplace(renamed(name, how), name);
        if (!added)
          throw failure(errc::bad_file,
                        stored_->where(name) + ": tensors " + shown(other->second) + " and " + shown(name) +
                          " are both " + shown(other->first));
      }
  }

  std::string name() const override { return stored_->name(); }

  std::vector<std::string> tensors() const override {
    auto names = names_in(tensors_);
    append_names(names, others_);
    return names;
  }

  const tensor_info* find(std::string_view tensor) const override {
    if (const auto found = tensors_.find(tensor); found != tensors_.end())
      return &found->second.info;
    const auto other = others_.find(tensor);
    return other == others_.end() ? nullptr : stored_->find(other->second);
  }

  tensor_data read(std::string_view name) const override {
    const auto found = tensors_.find(name);
    if (found == tensors_.end())
      return stored_->read(others_.find(name)->second);
    const auto& tensor = found->second;
    auto data = stored_->read(tensor.part.name);
    if (tensor.part.slices > 0)
      data = advanced(data, tensor.part.slice * tensor.stored_rows * tensor.stored_bytes);
    if (tensor.part.turned_rows > 0)
      return turned(tensor, data);
    std::size_t row_bytes = tensor.stored_bytes;
    if (tensor.part.transposed) {
      data = transposed(tensor, data);
      row_bytes = tensor.stored_rows * size_of(stored_->find(tensor.part.name)->type);
    }
    if (tensor.part.rows)
      data = chosen(*tensor.part.rows, data, row_bytes);
    return changes_values(tensor.part) ? shifted(tensor, data) : data;
  }

  /// Slices of one tensor are asked for one by one, which together would be much.
  void prefetch(std::string_view name) const override {
    const auto found = tensors_.find(name);
    if (found == tensors_.end() || found->second.part.slices == 0)
      stored_->prefetch(found == tensors_.end() ? others_.find(name)->second : found->second.part.name);
  }

  std::string where(std::string_view tensor) const override {
    if (const auto found = wanted_.find(tensor); found != wanted_.end() && found->second != tensor)
      return stored_->where(found->second) + " (" + shown(found->second) + ")";
    if (const auto other = others_.find(tensor); other != others_.end() && other->second != tensor)
      return stored_->where(other->second) + " (" + shown(other->second) + ")";
    return stored_->where(tensor);
  }

  std::vector<file_state> files() const override { return stored_->files(); }

private:
  static std::string renamed(const std::string& name, const arrangement& how) {
    if (const auto found = how.names.find(name); found != how.names.end())
      return found->second;
    for (const auto& [from, to] : how.prefixes)
      if (name.starts_with(from))
        return to + name.substr(from.size());
    return name;
  }

  [[noreturn]] void refuse(const stored_part& part, const std::string& what, errc code = errc::bad_file) const {
    throw failure(code, stored_->where(part.name) + ": tensor " + shown(part.name) + " " + what);
  }

  arranged_tensor describe(const stored_part& part, const tensor_info& info) const {
    arranged_tensor tensor{part, info};
    auto& shape = tensor.info.shape;
    if (part.slices > 0) {
      if (shape.size() < 2 || shape.front() != part.slices)
        refuse(part,
               "has the shape " + to_string(shape) + ", expected an outermost dimension of " +
                 std::to_string(part.slices));
      shape.erase(shape.begin());
    }
    if (shape.size() > 2 && part.slices == 0)
      std::erase(shape, 1);
    if (shape.empty() || shape.size() > 2)
      refuse(part, "has the shape " + to_string(info.shape) + ", which is neither a matrix nor a vector");
    const auto slices = std::max<std::size_t>(1, part.slices);
    tensor.stored_rows = shape.front();
    tensor.stored_bytes = tensor.stored_rows == 0 ? 0 : info.bytes / slices / tensor.stored_rows;
    const bool floats = !has_blocks(info.type);
    if (part.turned_rows > 0)
      return turned(part, info, tensor);
    if (part.transposed) {
      if (!floats || shape.size() != 2)
        refuse(part, "is stored as " + std::string(to_string(info.type)) + ", which cannot be transposed",
               errc::unsupported);
      std::swap(shape[0], shape[1]);
    }
    if (part.as_vector && shape.size() == 2 && floats) {
      shape = {shape[0] * shape[1]};
      tensor.stored_rows = shape.front();
      tensor.stored_bytes = size_of(info.type);
    }
    if (shape.size() == 1 && !floats)
      refuse(part, "is a vector in blocks", errc::unsupported);
    if (part.of_rows != 0 && shape.front() != part.of_rows)
      refuse(part,
             "has the shape " + to_string(info.shape) + ", expected " + std::to_string(part.of_rows) + " " +
               (part.transposed ? "columns" : "rows"));
    if (part.rows) {
      if (std::ranges::any_of(*part.rows, [&](auto row) { return row >= shape.front(); }))
        refuse(part, "has the shape " + to_string(info.shape) + ", which is too small");
      shape.front() = part.rows->size();
    }
    if (part.as_row && shape.size() == 1)
      shape = {1, shape.front()};
    std::size_t values = 1;
    for (const auto dimension : shape)
      values *= dimension; // fits, as the file's size was checked
    const auto format = weight_format_of(info.type);
    const bool whole = info.type == tensor_type::i64 || info.type == tensor_type::i32;
    if (changes_values(part)) {
      if (part.integers ? !whole : !format || (!floats && !is_fp8(info.type)))
        refuse(part,
               "is stored as " + std::string(to_string(info.type)) + ", supported are " +
                 (part.integers ? "I32 and I64" : "F32, F16, BF16 and FP8"),
               errc::unsupported);
      tensor.info.type = tensor_type::f32;
      tensor.info.bytes = values * sizeof(float);
    } else {
      tensor.info.bytes = floats ? values * size_of(info.type) : tensor.stored_bytes * shape.front(); // blocks: rows
    }
    return tensor;
  }

  arranged_tensor turned(const stored_part& part, const tensor_info& info, arranged_tensor& tensor) const {
    auto& shape = tensor.info.shape;
    if (shape.size() != 2 || (part.of_rows != 0 && shape[0] != part.of_rows) ||
        part.turned_first + part.turned_rows > shape[0])
      refuse(part, "has the shape " + to_string(info.shape) + ", expected " + std::to_string(part.of_rows) + " rows");
    if (!weight_format_of(info.type))
      refuse(part, "is stored as " + std::string(to_string(info.type)) + ", which cannot be transposed",
             errc::unsupported);
    shape = {shape[1], part.turned_rows};
    tensor.info.type = tensor_type::f32;
    tensor.info.bytes = shape[0] * shape[1] * sizeof(float);
    return tensor;
  }

  tensor_data turned(const arranged_tensor& tensor, const tensor_data& data) const {
    const auto format = *weight_format_of(stored_->find(tensor.part.name)->type);
    const auto cols = tensor.info.shape[0], rows = tensor.part.turned_rows;
    std::shared_ptr<float[]> to(new float[rows * cols]);
    std::vector<float> row(cols);
    for (std::size_t r = 0; r < rows; ++r) {
      to_floats(format, static_cast<const char*>(data.get()) + (tensor.part.turned_first + r) * tensor.stored_bytes,
                cols, row.data());
      for (std::size_t c = 0; c < cols; ++c)
        to[c * rows + r] = row[c];
    }
    return to;
  }

  static bool changes_values(const stored_part& part) { return part.offset != 0 || part.factor != 1 || part.integers; }

  static tensor_data advanced(const tensor_data& data, std::size_t bytes) {
    return {data, static_cast<const char*>(data.get()) + bytes};
  }

  tensor_data transposed(const arranged_tensor& tensor, const tensor_data& data) const {
    const auto element = size_of(stored_->find(tensor.part.name)->type);
    const auto rows = tensor.stored_rows, cols = tensor.stored_bytes / element;
    std::shared_ptr<char[]> to(new char[rows * cols * element]);
    const auto* from = static_cast<const char*>(data.get());
    constexpr std::size_t tile = 32; // rows and columns that stay in L1
    for (std::size_t first = 0; first < rows; first += tile)
      for (std::size_t col = 0; col < cols; ++col)
        for (std::size_t row = first; row < std::min(rows, first + tile); ++row)
          std::memcpy(to.get() + (col * rows + row) * element, from + (row * cols + col) * element, element);
    return to;
  }

  static tensor_data chosen(const std::vector<std::uint32_t>& rows, const tensor_data& data, std::size_t bytes) {
    bool neighbours = true;
    for (std::size_t i = 1; i < rows.size(); ++i)
      neighbours = neighbours && rows[i] == rows[i - 1] + 1;
    if (neighbours && !rows.empty())
      return advanced(data, rows.front() * bytes);
    std::shared_ptr<char[]> to(new char[rows.size() * bytes]);
    for (std::size_t i = 0; i < rows.size(); ++i)
      std::memcpy(to.get() + i * bytes, static_cast<const char*>(data.get()) + rows[i] * bytes, bytes);
    return to;
  }

  tensor_data shifted(const arranged_tensor& tensor, const tensor_data& data) const {
    const auto count = tensor.info.bytes / sizeof(float);
    std::shared_ptr<float[]> to(new float[count]);
    const auto type = stored_->find(tensor.part.name)->type;
    if (tensor.part.integers) {
      for (std::size_t i = 0; i < count; ++i)
        to[i] = type == tensor_type::i64 ? static_cast<float>(static_cast<const std::int64_t*>(data.get())[i])
                                         : static_cast<float>(static_cast<const std::int32_t*>(data.get())[i]);
      return to;
    }
    const auto format = *weight_format_of(type);
    const auto cols = tensor.info.shape.back();
    for (std::size_t i = 0; i < count; i += cols)
      to_floats(format, static_cast<const char*>(data.get()) + i / cols * row_bytes(format, cols), cols, &to[i]);
    for (std::size_t i = 0; i < count; ++i)
      to[i] = to[i] * tensor.part.factor + tensor.part.offset;
    return to;
  }

  std::unique_ptr<const checkpoint> stored_;
  std::map<std::string, std::string, std::less<>> wanted_; // stored names
  std::map<std::string, arranged_tensor, std::less<>> tensors_;
  std::map<std::string, std::string, std::less<>> others_; // presented names to stored ones
};

} // namespace

std::unique_ptr<const checkpoint> arrange(std::unique_ptr<const checkpoint> stored, const arrangement& how) {
  if (how.empty())
    return stored;
  return std::make_unique<arranged_checkpoint>(std::move(stored), how);
}

} // namespace troupe
