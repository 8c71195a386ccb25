// Products with low-rank pairs on a GPU: against sums in double, and bit by bit whatever the other rows.
#include "tests/kernels/cuda/support.hpp"

using namespace troupe::kernels;
using namespace troupe::kernels::cuda::testing;

namespace {

constexpr std::size_t pair_inputs = 72, pair_outputs = 34; // of a gated product: gate's, and as many of up's

/// A pair as a row of a product sees it.
struct random_pair {
  low_rank_pair shape;
  std::vector<float> a, b;

  random_pair(generator& random, std::size_t first, std::size_t outputs, std::size_t rank)
    : shape{first, outputs, rank},
      a(random.normal(rank * pair_inputs, 0.12f)),
      b(random.normal(outputs * rank, 1 / std::sqrt(float(rank)))) {}

  void add_to(std::vector<double>& sums, const numbers& in, std::size_t row, dtype compute) const {
    const numbers down(compute, a), up(compute, b);
    for (std::size_t r = 0; r < shape.rank; ++r) {
      double low = 0;
      for (std::size_t k = 0; k < pair_inputs; ++k)
        low += in[row * pair_inputs + k] * down[r * pair_inputs + k];
      for (std::size_t o = 0; o < shape.outputs; ++o)
        sums[shape.first_output + o] += low * up[o * shape.rank + r];
    }
  }
};

std::unique_ptr<const matrix> packed(low_rank_products& on, const std::vector<random_pair>& pairs, std::size_t outputs,
                                     dtype compute, bool gated) {
  std::vector<low_rank_pair> shapes;
  for (const auto& p : pairs) {
    shapes.push_back(p.shape);
    shapes.back().a = p.a.data();
    shapes.back().b = p.b.data();
  }
  return on.pack_low_rank(shapes, pair_inputs, outputs, compute, gated);
}

} // namespace

TEST_SUITE_BEGIN("cuda");

TEST_CASE("CUDA: low-rank pairs add what they give to their rows' sums, and before an activation") {
  for (const bool deterministic : {true, false})
    for (const auto compute : compute_types)
      for (const bool gated : {false, true}) {
        CAPTURE(gated);
        const auto device = make_device(deterministic);
        generator random(3);
        const bool many = !deterministic && compute == dtype::bf16; // for the library, which takes them in pieces
        const std::size_t rows = many ? 1030 : 11, outputs = gated ? 2 * pair_outputs : pair_outputs,
                          columns = pair_outputs;
        const numbers in(compute, random.normal(rows * pair_inputs));
        const auto weights = random.normal(outputs * pair_inputs, 0.12f), bias = random.normal(outputs, 0.1f);
        const stored_matrix gate{weights.data(), dtype::f32, columns, pair_inputs},
          up{weights.data() + columns * pair_inputs, dtype::f32, outputs - columns, pair_inputs};
        const auto w = gated ? device->pack_gate_up(gate, up, compute, quantization::none)
                             : device->pack({&gate, 1}, compute, quantization::none);
        const auto biases = device->upload(bias);
        std::vector<std::vector<random_pair>> sets(2);
        sets[0].emplace_back(random, 0, 20, 5);
        sets[0].emplace_back(random, outputs - 9, 9, 16);
        sets[1].emplace_back(random, 0, outputs, 8);
        const auto first = packed(*device, sets[0], outputs, compute, gated),
                   second = packed(*device, sets[1], outputs, compute, gated);

        const auto run = [&](const numbers& from, std::size_t count, std::span<const row_group> groups) {
          const device_tensor x(*device, from, count);
          const device_tensor out(
            *device, numbers(gated ? compute : dtype::f32, std::vector<float>(count * columns, 0.5f)), count);
          const auto* added = static_cast<const float*>(biases.get());
          if (gated)
            device->linear_activated_plus(out.view, x.view, *w, {activation_type::silu}, true, added, groups);
          else
            device->linear_plus(out.view, x.view, *w, added, store::add, groups);
          return out.read();
        };
        const std::vector<std::int32_t> some{0, 3, 10}, others{1, 2, 4, std::int32_t(rows) - 4};
        const row_group groups[] = {{first.get(), nullptr, some}, {second.get(), nullptr, others}};
        const auto got = run(in, rows, groups);

        std::vector<double> want, tolerance;
        const numbers rounded(compute, weights);
        for (std::size_t r = 0; r < rows; ++r) {
          std::vector<double> sums(bias.begin(), bias.end());
          for (std::size_t o = 0; o < outputs; ++o)
            for (std::size_t k = 0; k < pair_inputs; ++k)
              sums[o] += in[r * pair_inputs + k] * rounded[o * pair_inputs + k];
          for (const auto& group : groups)
            if (std::ranges::count(group.rows, std::int32_t(r)) > 0)
              for (const auto& p : sets[group.w == first.get() ? 0 : 1])
                p.add_to(sums, in, r, compute);
          for (std::size_t o = 0; o < columns; ++o) {
            want.push_back(gated ? sums[o] / (1 + std::exp(-sums[o])) * sums[columns + o] : sums[o] + 0.5);
            tolerance.push_back((compute == dtype::bf16 ? 16 : 128) * unit(compute) * (1 + std::abs(want.back())));
          }
        }
        check_close(got.values(), want, tolerance, to_string(compute));

        if (!deterministic)
          continue;
        const std::vector<std::int32_t> one{0};
        for (const auto& group : groups) // alone, which are all rows
          for (const auto row : group.rows) {
            const row_group own{group.w, nullptr, one};
            const auto r = static_cast<std::size_t>(row);
            CHECK(run(in.slice(r * pair_inputs, pair_inputs), 1, {&own, 1}) == got.slice(r * columns, columns));
          }
        const auto without = run(in, rows, {});
        for (const std::size_t r : {5, 6, 8, 9}) // nobody's
          CHECK(without.slice(r * columns, columns) == got.slice(r * columns, columns));
      }
}

TEST_SUITE_END();
