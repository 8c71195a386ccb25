#include "kernels/cuda/low_rank_layers.hpp"

#include "kernels/cuda/device/rows.hpp"
#include "kernels/cuda/device_group.hpp"
#include "kernels/cuda/expect.hpp"
#include "kernels/cuda/grouped_products.hpp"
#include "kernels/sharded/column_ranges.hpp"

#include <vector>

namespace troupe::kernels::cuda {

namespace {

class packed_pairs : public matrix {
public:
  struct part {
    column_range outputs, ranks;
    std::unique_ptr<const matrix> b;
  };

  dtype compute = dtype::f32;
  std::size_t ranks = 0; // of all parts
  std::unique_ptr<const matrix> a;
  std::vector<part> parts;
};

} // namespace

std::unique_ptr<const matrix> low_rank_layers::pack(std::span<const low_rank_pair> pairs, std::size_t inputs,
                                                    std::size_t outputs, dtype compute) {
  auto to = std::make_unique<packed_pairs>();
  to->inputs = inputs;
  to->outputs = outputs;
  to->compute = compute;
  std::vector<stored_matrix> down;
  for (const auto& p : pairs) {
    expect(p.rank > 0 && p.outputs > 0 && p.first_output + p.outputs <= outputs,
           "low-rank pairs: a pair must be for outputs of the product");
    const stored_matrix up{p.b, dtype::f32, p.outputs, p.rank};
    to->parts.push_back(
      {{p.first_output, p.outputs}, {to->ranks, p.rank}, products_.pack({&up, 1}, compute, quantization::none)});
    to->bytes += to->parts.back().b->bytes;
    to->ranks += p.rank;
    down.push_back({p.a, dtype::f32, p.rank, inputs});
  }
  to->a = products_.pack(down, compute, quantization::none);
  to->bytes += to->a->bytes;
  return to;
}

void low_rank_layers::add(const tensor& to, const tensor& in, std::span<const row_group> groups) {
  for (const auto& group : groups) {
    const auto& pairs = dynamic_cast<const packed_pairs&>(*group.w);
    expect(in.type == pairs.compute && in.cols == pairs.inputs && to.cols == pairs.outputs && to.type == dtype::f32,
           "low-rank products: pairs must be packed for the type and the columns of the product");
    const auto count = group.rows.size();
    if (count == 0)
      continue;
    const bool whole = are_all(group.rows, in.rows);
    auto own = in;
    if (!whole) {
      own = packed_rows(gathered_, in.type, count, in.cols);
      products_.gather_rows(own, in, group.rows.data());
    }
    auto low = packed_rows(low_, dtype::f32, count, pairs.ranks);
    products_.linear(low, own, *pairs.a);
    if (in.type != dtype::f32) {
      const auto rounded = packed_rows(rounded_, in.type, count, pairs.ranks);
      products_.gather_rows(rounded, low, nullptr);
      low = rounded;
    }
    for (const auto& part : pairs.parts) {
      const auto of_part = columns_of(low, part.ranks), outputs = columns_of(to, part.outputs);
      if (whole) {
        products_.linear(outputs, of_part, *part.b, nullptr, store::add);
        continue;
      }
      const auto sums = packed_rows(sums_, dtype::f32, count, part.outputs.count);
      products_.linear(sums, of_part, *part.b);
      products_.add_rows(outputs, sums, 1, group.rows.data());
    }
  }
}

tensor low_rank_layers::biases(const tensor& in, std::size_t outputs, const float* bias,
                               std::span<const row_group> groups) {
  const auto to = packed_rows(biases_, dtype::f32, in.rows, outputs);
  products_.scale(to, 0, 0);
  if (bias != nullptr)
    add_bias(products_.queue(), static_cast<float*>(to.data), to.stride, bias, outputs, to.rows);
  add(to, in, groups);
  return to;
}

std::size_t low_rank_layers::scratch_bytes(std::size_t rows, std::size_t ranks, std::size_t outputs) {
  return device_scratch::reserved(rows * ranks * sizeof(float)) +
    device_scratch::reserved(rows * ranks * sizeof(std::uint16_t)) +
    device_scratch::reserved(rows * outputs * sizeof(float));
}

void cuda_backend::linear_plus(const tensor& out, const tensor& in, const matrix& w, const float* bias, store how,
                               std::span<const row_group> groups) {
  linear(out, in, w, bias, how);
  settle(in);
  settle(out);
  low_rank().add(out, in, groups);
}

void cuda_backend::linear_activated_plus(const tensor& out, const tensor& in, const matrix& w, const activation& act,
                                         bool gated, const float* bias, std::span<const row_group> groups) {
  settle(in);
  linear_biased(out, in, w, act, gated, low_rank().biases(in, (gated ? 2 : 1) * w.outputs, bias, groups));
}

std::unique_ptr<const matrix> cuda_backend::pack_low_rank(std::span<const low_rank_pair> pairs, std::size_t inputs,
                                                          std::size_t outputs, dtype compute, bool /*gated*/) {
  return low_rank().pack(pairs, inputs, outputs, compute);
}

} // namespace troupe::kernels::cuda
