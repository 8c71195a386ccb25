#include "kernels/cuda/divided_rows.hpp"

#include <cstdint>
#include <utility>

namespace troupe::kernels::cuda {

namespace {

bool same(const tensor& a, const tensor& b) {
  return a.data == b.data && a.type == b.type && a.rows == b.rows && a.cols == b.cols && a.stride == b.stride;
}

bool overlap(const tensor& a, const tensor& b) {
  if (a.data == nullptr || b.data == nullptr)
    return false;
  const auto begin = [](const tensor& t) { return reinterpret_cast<std::uintptr_t>(t.data); };
  const auto end = [&](const tensor& t) { return begin(t) + t.rows * t.stride * size_of(t.type); };
  return begin(a) < end(b) && begin(b) < end(a);
}

tensor some_rows(const tensor& t, column_range rows) {
  return {static_cast<char*>(t.data) + rows.first * t.stride * size_of(t.type), t.type, rows.count, t.cols, t.stride};
}

} // namespace

void divided_rows::use(const tensor& t) {
  if (overlap(t, whole_))
    whole_.data = nullptr;
  settle(t);
}

void divided_rows::settle(const tensor& t) {
  if (!overlap(t, residual_))
    return;
  if (away_)
    group_.together([&](device_rank& r, std::size_t i) {
      if (i > 0)
        copy_tensor(r.backend->queue(), some_rows(residual_, rows_of(residual_.rows, i)), rows_[i]);
    });
  away_ = false;
  residual_.data = nullptr;
}

void divided_rows::forget() {
  away_ = false;
  residual_.data = whole_.data = nullptr;
}

void divided_rows::forget_columns() {
  if (!by_rows())
    whole_.data = nullptr;
}

bool divided_rows::norm(const tensor& out, const tensor& x, const float* weight, const float* bias, const norm_op& op) {
  if (x.data != added_to_ || x.rows < least_ || x.stride != x.cols || overlap(out, x)) {
    use(x);
    use(out);
    return false;
  }
  const bool known = same(x, residual_);
  if (!known) {
    use(x);
    residual_ = x;
    rows_.assign(group_.ranks.size(), {});
  }
  std::vector<tensor> made(group_.ranks.size());
  group_.together([&](device_rank& r, std::size_t i) {
    const auto range = rows_of(x.rows, i);
    const auto from = some_rows(x, range), to = some_rows(out, range);
    if (i == 0) {
      rows_[0] = from;
      made[0] = to;
      return op(*r.backend, to, from, weight, bias);
    }
    const auto& on = r.backend->queue();
    if (!known) {
      rows_[i] = packed_rows(r.residual, x.type, range.count, x.cols);
      copy_tensor(on, rows_[i], from);
    }
    float* constants = r.bias.reserve<float>(2 * x.cols * sizeof(float));
    const auto brought = [&](float* own, const float* there) {
      if (there != nullptr)
        copy_on_device(on, own, there, x.cols * sizeof(float));
      return there != nullptr ? own : nullptr;
    };
    const float* own_weight = brought(constants, weight);
    const float* own_bias = brought(constants + x.cols, bias);
    made[i] = packed_rows(r.normed, out.type, range.count, out.cols);
    op(*r.backend, made[i], rows_[i], own_weight, own_bias);
    copy_tensor(on, to, made[i]);
  });
  whole_ = out;
  parts_ = std::move(made);
  ranges_.clear();
  return true;
}

bool divided_rows::add_to(const tensor& out) {
  if (same(out, residual_)) {
    away_ = true;
    return true;
  }
  use(out);
  added_to_ = out.data;
  return false;
}

void divided_rows::bring(device_rank& r, std::size_t rank, const tensor& to, column_range columns) const {
  for (std::size_t owner = 0; owner < rows_.size(); ++owner)
    if (rank != 0 || owner != 0) // those of the first GPU are in place
      copy_tensor(r.backend->queue(), some_rows(to, rows_of(residual_.rows, owner)), columns_of(rows_[owner], columns));
}

void divided_rows::take_back(device_rank& r, std::size_t rank, const tensor& from, column_range columns) const {
  for (std::size_t owner = 0; owner < rows_.size(); ++owner)
    if (rank != 0 || owner != 0)
      copy_tensor(r.backend->queue(), columns_of(rows_[owner], columns),
                  some_rows(from, rows_of(residual_.rows, owner)));
}

void divided_rows::gather(device_rank& r, const tensor& to, const tensor& in) const {
  const auto& on = r.backend->queue();
  if (!same(in, whole_))
    return copy_tensor(on, to, in);
  for (std::size_t owner = 0; owner < parts_.size(); ++owner) {
    const auto piece = by_rows() ? some_rows(to, rows_of(in.rows, owner)) : columns_of(to, ranges_[owner]);
    if (piece.rows > 0 && piece.cols > 0)
      copy_tensor(on, piece, parts_[owner]);
  }
}

void divided_rows::keep_columns(const tensor& whole, std::vector<tensor> parts, std::vector<column_range> ranges) {
  if (whole.rows < least_)
    return;
  whole_ = whole;
  parts_ = std::move(parts);
  ranges_ = std::move(ranges);
  parts_[0] = columns_of(whole, ranges_[0]);
}

} // namespace troupe::kernels::cuda
