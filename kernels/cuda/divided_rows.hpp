// Sequence parallelism of GPUs that share a model (Korthikanti et al. 2022, without its sums): in a step of many rows, the
// residual stream and its norms are divided by rows, each GPU having neighbouring ones; and what GPUs have computed by rows
// or by columns stays with them, so that the next product gathers its inputs from all of them rather than from the first.
// Bits do not depend on it. Part of device_ranks.
#pragma once

#include "kernels/cuda/device_group.hpp"
#include "kernels/sharded/column_ranges.hpp"

#include <functional>
#include <limits>
#include <vector>

namespace troupe::kernels::cuda {

class divided_rows {
public:
  explicit divided_rows(device_group& group) : group_(group) {}

  /// Steps are divided from so many rows on; never, until this is called.
  void divide_from(std::size_t rows) { least_ = rows; }

  /// Must be called before the first GPU reads or writes `t` on its own: brings residual rows back that are newer
  /// elsewhere. `use`: and forgets parts of it, as `t` may be written.
  void settle(const tensor& t);
  void use(const tensor& t);

  /// What is left of a step is not needed.
  void forget();
  /// The memory of parts by columns is about to be written.
  void forget_columns();

  /// Computes out = norm(x) with `norm`, each GPU its rows; or does nothing, if x is not to be divided, and returns false.
  /// `bias` and `weight` may be null.
  using norm_op =
    std::function<void(cuda_backend& on, const tensor& out, const tensor& x, const float* weight, const float* bias)>;
  bool norm(const tensor& out, const tensor& x, const float* weight, const float* bias, const norm_op& op);

  /// A product is about to be added to `out`: whether the GPUs have its rows. From then on, `bring` and `take_back` move a
  /// GPU's columns of them. Otherwise `out` becomes what later norms divide.
  bool add_to(const tensor& out);

  /// Columns of the residual, from the GPUs that have its rows, to `to`; and back. For the first GPU they are in its own
  /// memory, except the others' rows.
  void bring(device_rank& r, std::size_t rank, const tensor& to, column_range columns) const;
  void take_back(device_rank& r, std::size_t rank, const tensor& from, column_range columns) const;

  /// Copies `in` to the rank's memory `to`, from those who computed it where they are known.
  void gather(device_rank& r, const tensor& to, const tensor& in) const;

  /// GPU i has computed the columns ranges[i] of `whole`, which is whole on the first GPU, in parts[i] (but for the first,
  /// whose are in place). Before that memory is written
  /// again, `forget_columns`.
  void keep_columns(const tensor& whole, std::vector<tensor> parts, std::vector<column_range> ranges);

private:
  column_range rows_of(std::size_t rows, std::size_t rank) const {
    return kernels::columns_of(rows, rank, group_.ranks.size(), 1);
  }
  bool by_rows() const { return ranges_.empty(); }

  device_group& group_;
  std::size_t least_ = std::numeric_limits<std::size_t>::max();
  const void* added_to_ = nullptr; // the residual, as products have shown

  tensor residual_;          // without data: not divided
  bool away_ = false;        // the others' rows are newer than the first GPU's
  std::vector<tensor> rows_; // of the residual, by GPU

  tensor whole_;              // without data: nothing is kept
  std::vector<tensor> parts_; // of it
  std::vector<column_range> ranges_;
};

} // namespace troupe::kernels::cuda
