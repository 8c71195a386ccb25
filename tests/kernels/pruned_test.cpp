// Weights of which 2 of every 4 are stored: products have the bits of those with the zeros.
#include "kernels/activation_sparsity.hpp"
#include "kernels/formats/pruned_weights.hpp"
#include "kernels/formats/weight_groups.hpp"
#include "tests/kernels/support.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

using namespace troupe::kernels;
using namespace troupe::kernels::testing;

namespace {

constexpr weight_format pruned_formats[] = {weight_format::f32_24, weight_format::f16_24, weight_format::bf16_24};

/// Random weights, 2 of 4 at random places, as stored and with the zeros.
struct pruned_weights {
  std::size_t outputs, inputs;
  weight_format format;
  std::vector<std::uint8_t> stored;
  numbers whole;

  pruned_weights(generator& random, weight_format format, std::size_t outputs, std::size_t inputs)
    : outputs(outputs), inputs(inputs), format(format), stored(outputs * row_bytes(format, inputs)) {
    constexpr int places[6][2] = {{0, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}, {2, 3}};
    const auto type = dtype_of(whole_format(format));
    std::vector<float> all(outputs * inputs);
    const auto values = random.normal(all.size() / 2, 0.05f);
    for (std::size_t four = 0; four < all.size() / 4; ++four) {
      const auto& [first, second] = places[random.below(6)];
      const numbers exact(type, {values[2 * four], values[2 * four + 1]});
      const kept_pair pair{float(exact[0]), float(exact[1]), first, second};
      const auto row = four / (inputs / 4);
      store_pruned_pair(format, &stored[row * row_bytes(format, inputs)], four % (inputs / 4), pair);
      all[4 * four + std::size_t(first)] = pair.first;
      all[4 * four + std::size_t(second)] = pair.second;
    }
    whole = numbers(type, all);
  }

  stored_matrix view() const { return {stored.data(), format, outputs, inputs}; }
  stored_matrix dense() const { return {whole.data(), whole_format(format), outputs, inputs}; }
};

/// Tiles of AMX add the even and the odd inputs apart, and ARM's instructions for pairs have an order of their own;
/// pruned weights are multiplied without them.
bool same_order(isa target, dtype compute, weight_format format) {
  const bool own_pairs = target == isa::avx512_amx || (target >= isa::neon_i8mm && target <= isa::sve_512);
  return !own_pairs || compute == dtype::f32 || format == weight_format::f16_24;
}

void check_near(const numbers& got, const numbers& want, std::size_t inputs) {
  check_close(got.values(), want.values(), std::vector<double>(want.size(), 1e-6 * double(inputs) + 1e-3), "pruned");
}

} // namespace

TEST_CASE("pruned rows read back what was stored") {
  generator random;
  for (const auto format : pruned_formats) {
    const pruned_weights w(random, format, 3, 40);
    CHECK(row_bytes(format, 40) == 5 * (format == weight_format::f32_24 ? 17 : 9));
    for (std::size_t row = 0; row < 3; ++row)
      for (const std::size_t first : {0, 4, 12}) {
        std::vector<float> got(24);
        expand(format, w.view().row(row), first, got.size(), got.data());
        for (std::size_t i = 0; i < got.size(); ++i)
          CHECK(got[i] == float(w.whole[row * 40 + first + i]));
      }
  }
}

TEST_CASE("products with pruned weights have the bits of those with the zeros, for any number of rows") {
  for (const isa target : tested_isas()) {
    const auto device = make_backend(target, 2);
    for (const auto format : pruned_formats)
      for (const dtype compute : compute_types)
        for (const auto& [outputs, inputs] : {std::pair<std::size_t, std::size_t>{70, 648}, {130, 8}, {1, 1096}}) {
          CAPTURE(std::string(to_string(target)));
          CAPTURE(std::string(to_string(format)));
          CAPTURE(std::string(to_string(compute)));
          CAPTURE(inputs);
          generator random;
          const pruned_weights w(random, format, outputs, inputs);
          const auto view = w.view(), dense = w.dense();
          const auto packed = device->pack({&view, 1}, compute), whole = device->pack({&dense, 1}, compute);
          CHECK(packed->bytes == device->packed_bytes({&view, 1}, compute, quantization::none, false));
          if (inputs > 600)
            CHECK(packed->bytes < 0.63 * double(whole->bytes));
          constexpr std::size_t most = 40;
          numbers in(compute, random.normal(most * inputs));
          const auto bias = random.normal(outputs);
          const auto run = [&](const matrix& weights, std::size_t first, std::size_t rows) {
            numbers out(dtype::f32, std::vector<float>(rows * outputs, 0.25f));
            auto some = in.slice(first * inputs, rows * inputs);
            device->linear(out.rows(rows), some.rows(rows), weights, bias.data(), store::add);
            return out;
          };
          const auto want = run(*whole, 0, most);
          const auto all = run(*packed, 0, most);
          if (same_order(target, compute, format))
            CHECK(all == want);
          else
            check_near(all, want, inputs);
          for (const std::size_t rows : {1, 2, 3, 5, 6, 7, 11, 12, 13, 25})
            CHECK_MESSAGE(run(*packed, 0, rows) == all.slice(0, rows * outputs), rows, " rows");
          for (const std::size_t row : {1, 20, 39})
            CHECK_MESSAGE(run(*packed, row, 1) == all.slice(row * outputs, outputs), "row ", row);
        }
  }
}

TEST_CASE("gated products, stacks and groups take pruned weights beside others") {
  constexpr std::size_t inputs = 96, ffn = 70, rows = 5;
  for (const isa target : tested_isas())
    for (const dtype compute : compute_types) {
      CAPTURE(std::string(to_string(target)));
      if (!same_order(target, compute, weight_format::bf16_24))
        continue;
      const auto device = make_backend(target, 2);
      generator random;
      const pruned_weights gate(random, weight_format::bf16_24, ffn, inputs),
        up(random, weight_format::bf16_24, ffn, inputs);
      numbers in(compute, random.normal(rows * inputs));
      const auto gated = [&](const stored_matrix& g, const stored_matrix& u) {
        const auto packed = device->pack_gate_up(g, u, compute);
        numbers out(compute, rows * ffn);
        device->linear_silu_gate(out.rows(rows), in.rows(rows), *packed);
        return out;
      };
      const auto want = gated(gate.dense(), up.dense());
      CHECK(gated(gate.view(), up.view()) == want);
      if (compute == dtype::f32) // both become f32
        CHECK(gated(gate.view(), up.dense()) == want);

      const auto stacked = [&](std::vector<stored_matrix> matrices) {
        const auto packed = device->pack(matrices, compute);
        numbers out(dtype::f32, rows * packed->outputs);
        device->linear(out.rows(rows), in.rows(rows), *packed);
        return out;
      };
      CHECK(stacked({gate.view(), up.dense(), up.view()}) == stacked({gate.dense(), up.dense(), up.dense()}));

      const auto a = gate.view(), b = up.dense(), c = up.view();
      const auto first = device->pack({&a, 1}, compute), second = device->pack({&b, 1}, compute),
                 third = device->pack({&c, 1}, compute);
      const std::vector<std::int32_t> some{0, 3}, others{1, 2, 4}, last{0, 4};
      const row_group mixed[] = {
        {first.get(), nullptr, some}, {second.get(), nullptr, others}, {third.get(), nullptr, last}};
      numbers out(compute, 7 * ffn);
      device->grouped_activated(out.rows(7), in.rows(rows), mixed, {}, false);
      const auto alone = [&](const matrix& w, std::size_t row) {
        numbers one(compute, ffn);
        auto x = in.slice(row * inputs, inputs);
        device->linear_activated(one.rows(1), x.rows(1), w, {}, false);
        return one;
      };
      CHECK(out.slice(ffn, ffn) == alone(*first, 3));
      CHECK(out.slice(3 * ffn, ffn) == alone(*second, 2));
      CHECK(out.slice(6 * ffn, ffn) == alone(*third, 4));
    }
}

TEST_CASE("pruned weights stay as they are under any quantisation, and skip no activations") {
  const auto device = make_backend(available_isas().back());
  generator random;
  const pruned_weights w(random, weight_format::bf16_24, 64, 256);
  const auto view = w.view();
  const auto plain = device->pack({&view, 1}, dtype::bf16);
  for (const auto how : {quantization::int8, quantization::int4, quantization::fp8}) {
    const auto packed = device->pack({&view, 1}, dtype::bf16, how);
    const auto bytes = [&](const matrix& m) {
      const auto part = device->storable()->bytes_of(m).front();
      return std::vector<std::byte>(part.begin(), part.end());
    };
    CHECK(bytes(*packed) == bytes(*plain));
  }
  CHECK(!dynamic_cast<activation_sparsity&>(*device).skips_zeros(*plain));
}
