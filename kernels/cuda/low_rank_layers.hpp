// Products with low-rank pairs (kernels/low_rank.hpp), as products with two small matrices that are packed like others.
// Activated products take what pairs give as biases of each row. Owned by a backend, used by its thread on its stream.
#pragma once

#include "kernels/cuda/cuda_backend.hpp"
#include "kernels/cuda/device_scratch.hpp"

#include <memory>
#include <span>

namespace troupe::kernels::cuda {

class low_rank_layers {
public:
  /// `products`: what multiplies.
  explicit low_rank_layers(cuda_backend& products) : products_(products) {}

  std::unique_ptr<const matrix> pack(std::span<const low_rank_pair> pairs, std::size_t inputs, std::size_t outputs,
                                     dtype compute);

  /// Adds what the pairs of the groups give for rows of `in` to those of `to`, f32.
  void add(const tensor& to, const tensor& in, std::span<const row_group> groups);

  /// The same and a product's biases (or null), f32 [rows of in, outputs]; valid until the next call.
  tensor biases(const tensor& in, std::size_t outputs, const float* bias, std::span<const row_group> groups);

  /// How often scratch memory has moved.
  std::uint64_t growths() const {
    return gathered_.growths() + low_.growths() + rounded_.growths() + sums_.growths() + biases_.growths();
  }

  /// Bytes of scratch for groups that each have all of `rows` rows: pairs have `ranks` together, at most; `outputs` of
  /// activated products.
  static std::size_t scratch_bytes(std::size_t rows, std::size_t ranks, std::size_t outputs);

private:
  cuda_backend& products_;
  device_scratch gathered_, low_, rounded_, sums_, biases_;
};

} // namespace troupe::kernels::cuda
