// Products with weights that are divided by columns. Every rank reads all inputs and writes its own columns of the full
// rows; nothing is ever summed across ranks, so that each output has the bits of the whole matrix.
#pragma once

#include "kernels/sharded/rank_team.hpp"
#include "kernels/sharded/sharded_matrix.hpp"

#include <cstddef>
#include <memory>
#include <span>

namespace troupe::kernels {

class sharded_linear {
public:
  sharded_linear(rank_team& ranks, std::size_t unit) : ranks_(ranks), unit_(unit) {}

  /// See backend::pack and backend::pack_gate_up: every rank packs its own shard, in memory that its threads touch
  /// first.
  std::unique_ptr<matrix> pack(std::span<const stored_matrix> stacked, dtype compute, quantization how, bool gated);

  std::size_t packed_bytes(std::span<const stored_matrix> stacked, dtype compute, quantization how, bool gated) const;

  /// See storable_matrices: the ranks' shards one after another.
  std::vector<std::span<const std::byte>> bytes_of(const matrix& packed) const;
  std::unique_ptr<matrix> restore(std::span<const stored_matrix> stacked, dtype compute, quantization how, bool gated,
                                  const buffer& bytes) const;

  /// See low_rank_products.
  std::unique_ptr<const matrix> pack_low_rank(std::span<const low_rank_pair> pairs, std::size_t inputs,
                                              std::size_t outputs, dtype compute, bool gated);
  void plus(const tensor& out, const tensor& in, const matrix& w, const float* bias, store how,
            std::span<const row_group> groups);
  void activated_plus(const tensor& out, const tensor& in, const matrix& w, const activation& act, bool gated,
                      const float* bias, std::span<const row_group> groups);

  /// See backend::grouped_activated and backend::grouped_sum.
  void grouped_activated(const tensor& out, const tensor& in, std::span<const row_group> groups, const activation& act,
                         bool gated);
  void grouped_sum(const tensor& to, const tensor& in, std::span<const row_group> groups, store how);

  /// The steps of one rank, for its scratch.
  planned_steps steps_of(const planned_steps& steps, std::size_t rank) const;

private:
  /// A matrix of these outputs, without its shards.
  std::unique_ptr<sharded_matrix> shape(std::span<const stored_matrix> stacked, bool gated) const;

  rank_team& ranks_;
  std::size_t unit_; // of columns
};

/// The shard of the first rank, which has all that matters but the columns.
const matrix& first_shard(const matrix& w);

} // namespace troupe::kernels
