// Grouped products of a mixture of experts: against the reference, and bit by bit against one product after another.
#include "kernels/planned_steps.hpp"
#include "tests/kernels/support.hpp"

#include <numeric>

using namespace troupe::kernels;
using namespace troupe::kernels::testing;

namespace {

/// A kind of stored weights, how they are packed, and what activations come as.
struct mixture_kind {
  dtype stored, compute;
  quantization how;
};

const mixture_kind mixture_kinds[] = {
  {dtype::f32, dtype::f32, quantization::none},   {dtype::f16, dtype::bf16, quantization::none},
  {dtype::bf16, dtype::bf16, quantization::none}, {dtype::f32, dtype::f32, quantization::int8},
  {dtype::bf16, dtype::bf16, quantization::int8}, {dtype::bf16, dtype::bf16, quantization::int4},
  {dtype::f32, dtype::f32, quantization::fp8},    {dtype::bf16, dtype::bf16, quantization::fp8}};

struct expert_matrices {
  numbers gate, up, down;
  std::vector<float> up_bias, down_bias;
  std::unique_ptr<matrix> packed_up, packed_down;
};

/// Experts with biases, and the rows that chose them: every row some, in no particular numbers.
struct mixture {
  std::size_t hidden, ffn, rows;
  mixture_kind kind;
  activation act;
  bool gated;
  std::vector<expert_matrices> experts;
  std::vector<std::vector<std::int32_t>> chosen;
  std::vector<std::vector<float>> factors;
  numbers in;

  mixture(backend& device, unsigned seed, mixture_kind kind, std::size_t hidden, std::size_t ffn, std::size_t rows,
          std::size_t count, const activation& act = {activation_type::silu}, bool gated = true)
    : hidden(hidden), ffn(ffn), rows(rows), kind(kind), act(act), gated(gated) {
    generator random(seed);
    in = numbers(kind.compute, random.normal(rows * hidden));
    for (std::size_t e = 0; e < count; ++e) {
      auto& one = experts.emplace_back();
      one.gate = numbers(kind.stored, random.normal(ffn * hidden, 1 / std::sqrt(float(hidden))));
      one.up = numbers(kind.stored, random.normal(ffn * hidden, 1 / std::sqrt(float(hidden))));
      one.down = numbers(kind.stored, random.normal(ffn * hidden, 1 / std::sqrt(float(ffn))));
      one.up_bias = random.normal(gated ? 2 * ffn : ffn, 0.1f);
      one.down_bias = random.normal(hidden, 0.1f);
      const stored_matrix up{one.up.data(), kind.stored, ffn, hidden}, down{one.down.data(), kind.stored, hidden, ffn};
      one.packed_up = gated
        ? device.pack_gate_up({one.gate.data(), kind.stored, ffn, hidden}, up, kind.compute, kind.how)
        : device.pack({&up, 1}, kind.compute, kind.how);
      one.packed_down = device.pack({&down, 1}, kind.compute, kind.how);
      auto& who = chosen.emplace_back();
      for (std::size_t r = 0; r < rows; ++r)
        if (r % count == e || random.below(static_cast<int>(e) + 2) == 0)
          who.push_back(static_cast<std::int32_t>(r));
      factors.push_back(random.normal(who.size()));
    }
  }

  /// The groups of experts that a row chose; of `only` one row, or all.
  struct step {
    std::vector<std::vector<std::int32_t>> rows;
    std::vector<std::vector<float>> factors;
    std::vector<row_group> up, down;
    std::size_t pairs = 0;
  };
  step groups(std::int32_t only = -1) const {
    step to;
    to.rows.resize(experts.size());
    to.factors.resize(experts.size());
    for (std::size_t e = 0; e < experts.size(); ++e) {
      for (std::size_t i = 0; i < chosen[e].size(); ++i)
        if (only < 0 || chosen[e][i] == only) {
          to.rows[e].push_back(only < 0 ? chosen[e][i] : 0);
          to.factors[e].push_back(factors[e][i]);
        }
      if (to.rows[e].empty())
        continue;
      to.up.push_back({experts[e].packed_up.get(), experts[e].up_bias.data(), to.rows[e]});
      to.down.push_back({experts[e].packed_down.get(), experts[e].down_bias.data(), to.rows[e], to.factors[e]});
      to.pairs += to.rows[e].size();
    }
    return to;
  }

  numbers grouped(backend& device) {
    const auto step = groups();
    numbers middle(kind.compute, step.pairs * ffn), out(dtype::f32, rows * hidden);
    device.grouped_activated(middle.rows(step.pairs), in.rows(rows), step.up, act, gated);
    device.grouped_sum(out.rows(rows), middle.rows(step.pairs), step.down);
    return out;
  }

  /// One expert after another, one product after another, added to `start`.
  numbers in_turn(backend& device, float start = 0) {
    numbers out(dtype::f32, std::vector<float>(rows * hidden, start));
    const auto step = groups();
    for (std::size_t g = 0; g < step.up.size(); ++g) {
      const auto& up = step.up[g];
      const auto& down = step.down[g];
      const auto n = up.rows.size();
      numbers some(kind.compute, n * hidden), middle(kind.compute, n * ffn), given(dtype::f32, n * hidden);
      device.gather_rows(some.rows(n), in.rows(rows), up.rows.data());
      device.linear_activated(middle.rows(n), some.rows(n), *up.w, act, gated, up.bias);
      device.linear(given.rows(n), middle.rows(n), *down.w, down.bias);
      device.add_rows(out.rows(rows), given.rows(n), 1, down.rows.data(), down.factors.data());
    }
    return out;
  }

  std::string name(isa target) const {
    return std::string(to_string(target)) + " " + to_string(kind.stored) + " as " + to_string(kind.compute) + " " +
      std::to_string(static_cast<int>(kind.how)) + ", " + std::to_string(rows) + " rows, " + std::to_string(hidden) +
      " x " + std::to_string(ffn);
  }
};

/// Rows, hidden, ffn, experts.
struct mixture_shape {
  std::size_t rows, hidden, ffn, experts;
};

} // namespace

TEST_CASE("grouped products agree with the reference") {
  for (const isa target : tested_isas()) {
    const auto device = make_backend(target);
    for (const auto& [rows, hidden, ffn, experts] :
         {mixture_shape{1, 33, 7, 3}, {7, 64, 96, 4}, {13, 111, 70, 5}, {40, 35, 130, 2}}) {
      mixture m(*device, 5, mixture_kinds[0], hidden, ffn, rows, experts);
      std::vector<reference::expert> plain;
      for (std::size_t e = 0; e < experts; ++e) {
        const auto& one = m.experts[e];
        plain.push_back({{one.gate.data(), dtype::f32, ffn, hidden},
                         {one.up.data(), dtype::f32, ffn, hidden},
                         {one.down.data(), dtype::f32, hidden, ffn},
                         one.up_bias.data(),
                         one.down_bias.data(),
                         m.chosen[e],
                         m.factors[e]});
      }
      const auto want = reference::mixture(m.in.values(), rows, plain, m.act);
      // Every sum is of terms of about 1 with independent errors, and experts add up.
      const double each = 8 * std::sqrt(double(hidden + ffn)) * double(experts) * unit(dtype::f32);
      std::vector<double> tolerance;
      for (const double w : want)
        tolerance.push_back(each * (4 + std::abs(w)));
      check_close(m.grouped(*device).values(), want, tolerance, m.name(target));
    }
  }
}

TEST_CASE("a grouped product has the bits of one product after another, whatever threads, cache and other rows") {
  for (const isa target : tested_isas()) {
    const auto device = make_backend(target), alone = make_backend(target, 1),
               narrow = make_backend(target, 3, 1 << 14);
    for (const auto& kind : mixture_kinds)
      for (const auto& [rows, hidden, ffn, experts] :
           {mixture_shape{1, 96, 70, 4}, {3, 37, 64, 5}, {33, 65, 100, 3}, {130, 64, 32, 2}}) {
        mixture m(*device, 7, kind, hidden, ffn, rows, experts);
        const auto want = m.in_turn(*device);
        CHECK_MESSAGE(m.grouped(*device) == want, m.name(target));
        CHECK_MESSAGE(m.grouped(*alone) == want, m.name(target));
        CHECK_MESSAGE(m.grouped(*narrow) == want, m.name(target));
        for (const std::size_t row : {std::size_t(0), rows / 2, rows - 1}) {
          const auto step = m.groups(static_cast<std::int32_t>(row));
          auto one = m.in.slice(row * hidden, hidden);
          numbers middle(kind.compute, step.pairs * ffn), out(dtype::f32, hidden);
          device->grouped_activated(middle.rows(step.pairs), one.rows(1), step.up, m.act, m.gated);
          device->grouped_sum(out.rows(1), middle.rows(step.pairs), step.down);
          CHECK_MESSAGE(out == want.slice(row * hidden, hidden), m.name(target));
        }
      }
  }
}

TEST_CASE("grouped products do without a gate, and clamp as gpt-oss does") {
  for (const isa target : tested_isas()) {
    const auto device = make_backend(target);
    for (const auto& kind : mixture_kinds) {
      mixture plain(*device, 3, kind, 70, 40, 9, 3, {activation_type::gelu_tanh}, false);
      CHECK_MESSAGE(plain.grouped(*device) == plain.in_turn(*device), plain.name(target));
      mixture clamped(*device, 3, kind, 70, 40, 9, 3, {activation_type::clamped_swiglu, 1.702f, 0.5f});
      CHECK_MESSAGE(clamped.grouped(*device) == clamped.in_turn(*device), clamped.name(target));
    }
  }
}

TEST_CASE("experts whose matrices are of different kinds keep their order in each row's sum") {
  for (const isa target : tested_isas()) {
    const auto device = make_backend(target);
    mixture m(*device, 11, mixture_kinds[3], 64, 96, 21, 5);
    mixture other(*device, 11, {dtype::f32, dtype::f32, quantization::int4}, 64, 96, 21, 5);
    std::swap(m.experts[1], other.experts[1]);
    std::swap(m.experts[4], other.experts[4]);
    CHECK_MESSAGE(m.grouped(*device) == m.in_turn(*device), m.name(target));
  }
}

TEST_CASE("a grouped sum starts at 0, or adds to what is there; without groups it is 0") {
  const auto device = make_cpu_backend();
  mixture m(*device, 2, mixture_kinds[4], 70, 32, 5, 2);
  const auto step = m.groups();
  numbers middle(m.kind.compute, step.pairs * m.ffn), sums(dtype::f32, std::vector<float>(5 * 70, 0.75f));
  device->grouped_activated(middle.rows(step.pairs), m.in.rows(5), step.up, m.act, true);
  device->grouped_sum(sums.rows(5), middle.rows(step.pairs), step.down, store::add);
  CHECK(sums == m.in_turn(*device, 0.75f));
  middle.narrow.clear();
  device->grouped_sum(sums.rows(5), middle.rows(0), {}, store::add);
  CHECK(sums[0] != 0);
  device->grouped_sum(sums.rows(5), middle.rows(0), {});
  CHECK(sums.values() == std::vector<double>(5 * 70, 0));
}

TEST_CASE("grouped products refuse groups without rows, and outputs of other shapes") {
  const auto device = make_cpu_backend();
  mixture m(*device, 2, mixture_kinds[4], 64, 32, 5, 2);
  auto step = m.groups();
  numbers middle(m.kind.compute, step.pairs * m.ffn), sums(dtype::f32, 5 * 64);
  CHECK_THROWS_AS(device->grouped_activated(middle.rows(step.pairs), m.in.rows(5), {step.up.data(), 1}, m.act, true),
                  std::invalid_argument);
  CHECK_THROWS_AS(device->grouped_activated(middle.rows(step.pairs), m.in.rows(5), step.up, m.act, false),
                  std::invalid_argument);
  CHECK_THROWS_AS(device->grouped_sum(sums.rows(5), middle.rows(step.pairs), step.up), std::invalid_argument);
  step.up.push_back({step.up[0].w, nullptr, {}});
  CHECK_THROWS_AS(device->grouped_activated(middle.rows(step.pairs), m.in.rows(5), step.up, m.act, true),
                  std::invalid_argument);
}

TEST_CASE("scratch of a mixture is planned for each row once, and again for each expert that it chooses") {
  const std::size_t rows = 8, row_bytes = 16 * 12 * 4; // up to 512 inputs in int8: 16 records of 12 words
  const stored_matrix w{nullptr, dtype::f32, 64, 64};
  for (const isa target : tested_isas()) {
    const auto device = make_backend(target);
    const auto planned = [&](std::size_t chosen) {
      planned_steps steps;
      steps.rows = rows;
      steps.matrices.push_back({{w}, quantization::int8, false, rows, chosen});
      return device->scratch_bytes(steps);
    };
    CHECK(planned(0) >= rows * row_bytes);
    CHECK(planned(3) >= 4 * rows * row_bytes);
    CHECK(planned(6) >= planned(3) + 3 * rows * row_bytes);
  }
}
