// An abstract source of named tensors: safetensors files, GGUF files, synthetic weights. Tensors have the names and
// shapes of Hugging Face's checkpoints; formats with other conventions translate. Used by one thread, the loader's; the
// data that `read` returns may be used and dropped on any.
#pragma once

#include "kernels/ops.hpp"
#include "runtime/support/file_state.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// Types that a checkpoint may store: single elements (safetensors' types), then block formats (GGUF's, and rows of fp8
/// with a scale), in the order of kernels::weight_format. Weights can be f32, f16, bf16 or blocks.
enum class tensor_type : std::uint8_t {
  boolean,
  u8,
  i8,
  f8_e5m2,
  f8_e4m3,
  f8_e8m0,
  u16,
  i16,
  f16,
  bf16,
  u32,
  i32,
  f32,
  u64,
  i64,
  f64,
  c64,
  q4_0,
  q4_1,
  q5_0,
  q5_1,
  q8_0,
  q4_k,
  q5_k,
  q6_k,
  fp8_rows,
};

std::string_view to_string(tensor_type type);

constexpr bool has_blocks(tensor_type type) { return type >= tensor_type::q4_0; }

/// Bytes of one element. For types without blocks.
std::size_t size_of(tensor_type type);

/// The format for the kernels, or nothing if they do not support the type.
std::optional<kernels::weight_format> weight_format_of(tensor_type type);

struct tensor_info {
  tensor_type type = tensor_type::f32;
  std::vector<std::size_t> shape; // outermost first; block types have whole blocks in the innermost
  std::size_t bytes = 0;
};

/// "[128, 64]", for messages.
std::string to_string(const std::vector<std::size_t>& shape);

/// A name from a file, for one-line messages: in backquotes, shortened, without control characters.
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

  /// Where the tensor is stored, for messages: a file, or the checkpoint's name.
  virtual std::string where(std::string_view tensor) const = 0;

  /// The files that tensors are read from, in their state when opened. Empty for synthetic tensors.
  virtual std::vector<file_state> files() const { return {}; }
};

} // namespace troupe
