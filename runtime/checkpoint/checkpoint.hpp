// An abstract source of named tensors: safetensors files, GGUF files, synthetic weights. Tensors have the names and
// shapes of Hugging Face's checkpoints; formats with other conventions translate. Used by one thread, the loader's; the
// data that `read` returns may be used and dropped on any.
#pragma once

#include "kernels/ops.hpp"
#include "runtime/support/files/file_state.hpp"

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// Element types of safetensors files beside the weight formats.
enum class element_type : std::uint8_t {
  boolean,
  u8,
  i8,
  f8_e5m2,
  f8_e4m3,
  f8_e8m0,
  u16,
  i16,
  u32,
  i32,
  u64,
  i64,
  f64,
  c64
};

/// How a tensor is stored: in one of the formats that weights can have, or as elements of another type.
class tensor_type {
public:
  using enum kernels::weight_format;
  using enum element_type;

  constexpr tensor_type(kernels::weight_format format) : is_weight_(true), index_(static_cast<std::uint8_t>(format)) {}
  constexpr tensor_type(element_type type) : is_weight_(false), index_(static_cast<std::uint8_t>(type)) {}

  /// Nothing for types that weights cannot have.
  constexpr std::optional<kernels::weight_format> format() const {
    return is_weight_ ? std::optional(static_cast<kernels::weight_format>(index_)) : std::nullopt;
  }

  /// The element of a type that is no weight format.
  constexpr element_type element() const { return static_cast<element_type>(index_); }

  friend constexpr auto operator<=>(const tensor_type&, const tensor_type&) = default;

private:
  bool is_weight_;
  std::uint8_t index_;
};

/// The name that safetensors and ggml have for it: "BF16", "Q4_K".
std::string_view to_string(tensor_type type);

/// The type of a safetensors dtype, or nothing if it is unknown.
std::optional<tensor_type> parse_safetensors_type(std::string_view dtype);

/// Whether elements share scales: GGUF's blocks, and rows of fp8.
constexpr bool has_blocks(tensor_type type) { return type.format() && !kernels::is_float(*type.format()); }

/// Whether it is a format of fp8 with its scales.
constexpr bool is_fp8(tensor_type type) { return type.format() && kernels::is_fp8(*type.format()); }

/// Bytes of one element. For types without blocks.
std::size_t size_of(tensor_type type);

/// The format for the kernels, or nothing if they do not support the type.
constexpr std::optional<kernels::weight_format> weight_format_of(tensor_type type) { return type.format(); }

struct tensor_info {
  tensor_type type = tensor_type::f32;
  std::vector<std::size_t> shape; // outermost first; block types have whole blocks in the innermost
  std::size_t bytes = 0;
};

/// "[128, 64]", for messages.
std::string to_string(const std::vector<std::size_t>& shape);

/// A name from a file, for one-line messages: in backquotes, shortened, valid UTF-8 without control characters.
std::string shown(std::string_view name);

/// A tensor's elements or blocks, as stored: row-major, aligned to the element's size (blocks are not aligned). Freed
/// with its last owner.
using tensor_data = std::shared_ptr<const void>;

class checkpoint {
public:
  virtual ~checkpoint() = default;

  /// The folder, the file or the synthetic shape, for messages.
  virtual std::string name() const = 0;

  virtual std::vector<std::string> tensors() const = 0;

  /// Null if there is no such tensor.
  virtual const tensor_info* find(std::string_view tensor) const = 0;

  /// The data of a tensor that `find` finds. May outlive the checkpoint.
  virtual tensor_data read(std::string_view tensor) const = 0;

  /// Asks for the data of a tensor that will be read next, where it is in a file. A hint.
  virtual void prefetch(std::string_view /*tensor*/) const {}

  /// Where the tensor is stored, for messages: a file, or the checkpoint's name.
  virtual std::string where(std::string_view tensor) const = 0;

  /// The files that tensors are read from, in their state when opened. Empty for synthetic tensors.
  virtual std::vector<file_state> files() const { return {}; }
};

} // namespace troupe
