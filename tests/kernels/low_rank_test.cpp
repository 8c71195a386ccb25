// Products with low-rank pairs added to rows: against sums in double, and bit by bit whatever the other rows.
#include "kernels/low_rank.hpp"
#include "tests/kernels/support.hpp"

using namespace troupe::kernels;
using namespace troupe::kernels::testing;

namespace {

/// Random pairs for some of a product's outputs.
struct random_pairs {
  dtype compute;
  std::size_t inputs, outputs;
  std::vector<numbers> a, b;
  std::unique_ptr<const matrix> packed;
  std::vector<low_rank_pair> pairs;

  random_pairs(low_rank_products& device, generator& random, dtype compute, std::size_t inputs, std::size_t outputs,
               std::vector<low_rank_pair> shapes)
    : compute(compute), inputs(inputs), outputs(outputs), pairs(std::move(shapes)) {
    std::vector<std::vector<float>> values;
    for (auto& p : pairs) {
      values.push_back(random.normal(p.rank * inputs, 1 / std::sqrt(float(inputs))));
      a.emplace_back(compute, values.back());
      values.push_back(random.normal(p.outputs * p.rank, 1 / std::sqrt(float(p.rank))));
      b.emplace_back(compute, values.back());
    }
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      pairs[i].a = values[2 * i].data();
      pairs[i].b = values[2 * i + 1].data();
    }
    packed = device.pack_low_rank(pairs, inputs, outputs, compute);
  }

  /// in · aᵀ · bᵀ of one row, with the middle rounded as kernels round it.
  std::vector<double> added_to(const numbers& in, std::size_t row) const {
    std::vector<double> sums(outputs);
    for (std::size_t i = 0; i < pairs.size(); ++i)
      for (std::size_t r = 0; r < pairs[i].rank; ++r) {
        double low = 0;
        for (std::size_t k = 0; k < inputs; ++k)
          low += in[row * inputs + k] * a[i][r * inputs + k];
        for (std::size_t o = 0; o < pairs[i].outputs; ++o)
          sums[pairs[i].first_output + o] += low * b[i][o * pairs[i].rank + r];
      }
    return sums;
  }
};

low_rank_pair shape(std::size_t first, std::size_t outputs, std::size_t rank) { return {first, outputs, rank}; }

/// A product, three sets of pairs, and whose rows are whose: some are nobody's.
struct workload {
  backend& device;
  low_rank_products& products;
  generator random;
  dtype compute;
  std::size_t rows, inputs, outputs;
  bool gated;
  numbers in;
  std::vector<float> bias;
  std::unique_ptr<matrix> w; // of `mixed` formats, a stack of three
  std::vector<random_pairs> sets;
  std::vector<std::vector<std::int32_t>> whose;

  workload(backend& device, dtype compute, std::size_t rows, std::size_t inputs, std::vector<std::size_t> parts,
           quantization how, bool gated, float deviation = 1, bool mixed = false)
    : device(device),
      products(dynamic_cast<low_rank_products&>(device)),
      random(3),
      compute(compute),
      rows(rows),
      inputs(inputs),
      outputs(0),
      gated(gated),
      in(compute, random.normal(rows * inputs)) {
    std::vector<numbers> values;
    for (const auto part : parts) {
      values.emplace_back(dtype::f32, random.normal(part * inputs, deviation / std::sqrt(float(inputs))));
      outputs += part;
    }
    std::vector<stored_matrix> stacked;
    for (std::size_t i = 0; i < parts.size(); ++i)
      stacked.push_back({values[i].data(), dtype::f32, parts[i], inputs});
    std::vector<std::uint8_t> blocks(parts[1] * inputs / 32 * 34);
    if (mixed) {
      for (std::size_t n = 0; n < blocks.size(); ++n)
        blocks[n] = static_cast<std::uint8_t>(n % 34 == 0 ? 0 : n % 34 == 1 ? 0x14 : random.below(256)); // scale 2^-10
      stacked[1] = {blocks.data(), weight_format::q8_0, parts[1], inputs};
    }
    if (gated)
      w = device.pack_gate_up(stacked[0], stacked[1], compute, how);
    else
      w = device.pack(stacked, compute, how);
    bias = random.normal(outputs, 0.1f * deviation);
    const auto first = parts.front(), last = parts.back();
    sets.emplace_back(products, random, compute, inputs, outputs,
                      std::vector{shape(0, first, 5), shape(outputs - last, last, 5)});
    sets.emplace_back(products, random, compute, inputs, outputs, std::vector{shape(outputs - last, last, 16)});
    sets.emplace_back(products, random, compute, inputs, outputs,
                      std::vector{shape(0, first, 1), shape(outputs - last, last, 40)});
    whose.resize(sets.size());
    for (std::size_t r = 0; r < rows; ++r)
      if (const auto set = (r * 7 / 3) % (sets.size() + 1); set < sets.size())
        whose[set].push_back(static_cast<std::int32_t>(r));
  }

  std::vector<row_group> groups() const {
    std::vector<row_group> all;
    for (std::size_t s = 0; s < sets.size(); ++s)
      if (!whose[s].empty())
        all.push_back({sets[s].packed.get(), nullptr, whose[s]});
    return all;
  }

  std::size_t columns() const { return gated ? outputs / 2 : outputs; }
  dtype type() const { return gated ? compute : dtype::f32; }

  /// The product of rows of `from`, which were added to `start`.
  numbers run(backend& on, numbers from, std::size_t count, std::span<const row_group> added, float start = 0) const {
    numbers out(type(), std::vector<float>(count * columns(), start));
    auto& with = dynamic_cast<low_rank_products&>(on);
    if (gated)
      with.linear_activated_plus(out.rows(count), from.rows(count), *w, {activation_type::silu}, true, bias.data(),
                                 added);
    else
      with.linear_plus(out.rows(count), from.rows(count), *w, bias.data(), store::add, added);
    return out;
  }
};

} // namespace

TEST_CASE("low-rank pairs add what they give to their rows' sums") {
  for (const isa target : tested_isas()) {
    const auto device = make_backend(target);
    for (const auto compute : compute_types)
      for (const bool mixed : {false, true})
        for (const std::size_t inputs : {std::size_t(64), mixed ? std::size_t(160) : std::size_t(101)}) {
          const workload x(*device, compute, 13, inputs, {20, 7, 50}, quantization::none, false, 1, mixed);
          const auto base = x.run(*device, x.in, x.rows, {}, 0.5f);
          const auto got = x.run(*device, x.in, x.rows, x.groups(), 0.5f);
          auto want = base.values();
          for (std::size_t s = 0; s < x.sets.size(); ++s)
            for (const auto row : x.whose[s]) {
              const auto added = x.sets[s].added_to(x.in, static_cast<std::size_t>(row));
              for (std::size_t o = 0; o < x.outputs; ++o)
                want[static_cast<std::size_t>(row) * x.outputs + o] += added[o];
            }
          const std::vector<double> tolerance(want.size(), (compute == dtype::bf16 ? 8 : 64) * unit(compute));
          check_close(got.values(), want, tolerance, std::string(to_string(target)) + " " + to_string(compute));
          CHECK(got != base);
        }
  }
}

TEST_CASE("low-rank pairs add to gate and up before the activation") {
  for (const isa target : tested_isas()) {
    const auto device = make_backend(target);
    for (const auto compute : compute_types) {
      const workload x(*device, compute, 9, 70, {37, 37}, quantization::none, true, 0); // all sums are 0
      const auto got = x.run(*device, x.in, x.rows, x.groups());
      std::vector<double> want(x.rows * x.columns());
      for (std::size_t s = 0; s < x.sets.size(); ++s)
        for (const auto row : x.whose[s]) {
          const auto added = x.sets[s].added_to(x.in, static_cast<std::size_t>(row));
          for (std::size_t o = 0; o < x.columns(); ++o)
            want[static_cast<std::size_t>(row) * x.columns() + o] = added[o] / (1 + std::exp(-added[o])) *
              added[x.columns() + o];
        }
      std::vector<double> tolerance;
      for (const double v : want)
        tolerance.push_back((compute == dtype::bf16 ? 16 : 128) * unit(compute) * (1 + std::abs(v)));
      check_close(got.values(), want, tolerance, std::string(to_string(target)) + " " + to_string(compute));
    }
  }
}

TEST_CASE("a row with low-rank pairs has the same bits alone, with other rows, and on any threads") {
  for (const isa target : tested_isas()) {
    const auto device = make_backend(target), one = make_backend(target, 1), narrow = make_backend(target, 3, 1 << 14);
    for (const auto compute : compute_types)
      for (const auto how : {quantization::none, quantization::int8, quantization::int4, quantization::fp8})
        for (const bool gated : {false, true})
          for (const std::size_t rows : {std::size_t(5), std::size_t(90)}) {
            const workload x(*device, compute, rows, 96,
                             gated ? std::vector<std::size_t>{70, 70} : std::vector<std::size_t>{32, 9, 200}, how,
                             gated);
            const auto all = x.run(*device, x.in, rows, x.groups());
            const auto base = x.run(*device, x.in, rows, {});
            CHECK(x.run(*one, x.in, rows, x.groups()) == all);
            CHECK(x.run(*narrow, x.in, rows, x.groups()) == all);
            const auto width = x.columns();
            std::vector<bool> added(rows);
            for (std::size_t s = 0; s < x.sets.size(); ++s)
              for (const auto row : x.whose[s]) {
                const auto r = static_cast<std::size_t>(row);
                added[r] = true;
                const std::int32_t first[] = {0};
                const row_group group{x.sets[s].packed.get(), nullptr, first};
                const auto alone = x.run(*device, x.in.slice(r * x.inputs, x.inputs), 1, {&group, 1});
                CHECK(alone == all.slice(r * width, width));
              }
            for (std::size_t r = 0; r < rows; ++r)
              if (!added[r])
                CHECK(base.slice(r * width, width) == all.slice(r * width, width));
          }
  }
}
