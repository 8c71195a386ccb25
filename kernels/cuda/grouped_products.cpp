#include "kernels/cuda/grouped_products.hpp"

#include "kernels/cuda/device/family_rows.hpp"
#include "kernels/cuda/expect.hpp"

namespace troupe::kernels::cuda {

namespace {

tensor rows_of(const tensor& of, std::size_t first, std::size_t count) {
  return {static_cast<char*>(of.data) + first * of.stride * size_of(of.type), of.type, count, of.cols, of.stride};
}

} // namespace

bool are_all(std::span<const std::int32_t> rows, std::size_t count) {
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (static_cast<std::size_t>(rows[i]) != i)
      return false;
  return rows.size() == count;
}

void grouped_products::activated(const tensor& out, const tensor& in, std::span<const row_group> groups,
                                 const activation& act, bool gated) {
  all_rows_.clear();
  for (const auto& group : groups)
    all_rows_.insert(all_rows_.end(), group.rows.begin(), group.rows.end());
  expect(out.rows == all_rows_.size() && out.type == in.type,
         "grouped_activated: out must be of the type of in, with a row for each of the groups'");
  const bool whole = groups.size() == 1 && are_all(all_rows_, in.rows);
  const auto* rows = whole ? nullptr : rows_.upload(products_.queue(), all_rows_.data(), all_rows_.size());
  std::size_t first = 0;
  for (const auto& group : groups) {
    const auto count = group.rows.size();
    if (count == 0)
      continue;
    tensor own = in;
    if (!whole) {
      own = {gathered_.reserve(count * in.cols * size_of(in.type)), in.type, count, in.cols, in.cols};
      gather_rows(products_.queue(), own, in, rows + first);
    }
    products_.linear_activated(rows_of(out, first, count), own, *group.w, act, gated, group.bias);
    first += count;
  }
}

void grouped_products::sum(const tensor& to, const tensor& in, std::span<const row_group> groups, store how) {
  all_rows_.clear();
  all_factors_.clear();
  for (const auto& group : groups) {
    expect(group.factors.size() == group.rows.size(), "grouped_sum: a factor for each row");
    all_rows_.insert(all_rows_.end(), group.rows.begin(), group.rows.end());
    all_factors_.insert(all_factors_.end(), group.factors.begin(), group.factors.end());
  }
  expect(in.rows == all_rows_.size() && to.type == dtype::f32,
         "grouped_sum: to must be f32, and in have a row for each of the groups'");
  const auto& on = products_.queue();
  if (how == store::set)
    scale_rows(on, to, 0, 0);
  const auto* rows = rows_.upload(on, all_rows_.data(), all_rows_.size());
  const auto* factors = factors_.upload(on, all_factors_.data(), all_factors_.size());
  std::size_t first = 0;
  for (const auto& group : groups) {
    const auto count = group.rows.size();
    if (count == 0)
      continue;
    const tensor sums{sums_.reserve(count * to.cols * sizeof(float)), dtype::f32, count, to.cols, to.cols};
    products_.linear(sums, rows_of(in, first, count), *group.w, group.bias, store::set);
    add_rows(on, to, sums, 1, rows + first, factors + first);
    first += count;
  }
}

std::size_t grouped_products::scratch_bytes(std::size_t rows, std::size_t chosen, std::size_t inputs,
                                            std::size_t outputs) {
  const auto list = device_scratch::reserved(rows * chosen * sizeof(float));
  return device_scratch::reserved(rows * inputs * sizeof(float)) +
    device_scratch::reserved(rows * outputs * sizeof(float)) + 2 * list;
}

} // namespace troupe::kernels::cuda
