// What the parts of class decoder share: its buffers as tensors. For its sources alone.
#pragma once

#include "kernels/ops.hpp"
#include "runtime/support/error.hpp"
#include "runtime/support/types.hpp"

#include <cstddef>
#include <string>

namespace troupe {

/// The first `rows` rows of a buffer of rows without gaps.
inline kernels::tensor buffer_rows(const kernels::buffer& memory, kernels::dtype type, std::size_t rows,
                                   std::size_t cols) {
  return {memory.get(), type, rows, cols, cols};
}

/// Some neighbouring columns of f32 or bf16.
inline kernels::tensor column_part(const kernels::tensor& of, std::size_t first, std::size_t count) {
  return {static_cast<char*>(of.data) + first * size_of(of.type), of.type, of.rows, count, of.stride};
}

inline const float* float_data(const kernels::buffer& vector) { return static_cast<const float*>(vector.get()); }

inline void require_in_decoder(bool condition, const char* what) {
  if (!condition)
    throw failure(errc::internal, std::string("decoder: ") + what);
}

} // namespace troupe
