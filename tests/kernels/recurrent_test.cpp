// Recurrent layers: against loops in double precision, and bit-equal however a sequence comes in chunks, among others,
// with rows that are taken back, on any number of threads.
#include "tests/kernels/recurrent_checks.hpp"

using namespace troupe::kernels;
using namespace troupe::kernels::testing;

TEST_CASE("convolutions and recurrences agree with loops in double precision") {
  for (const isa target : tested_isas())
    for (const auto& l : layers())
      check_reference(
        l, [target] { return make_backend(target, 2); }, 70, std::string(to_string(target)));
}

TEST_CASE("a state has the same bits in any chunks, with rows that are taken back, saves and copies") {
  for (const isa target : tested_isas())
    for (const auto& l : layers()) {
      CAPTURE(l.name);
      CAPTURE(std::string(to_string(target)));
      std::vector<backend_maker> crowds;
      for (int threads = 1; threads <= 3; ++threads)
        crowds.push_back([target, threads] { return make_backend(target, threads); });
      check_crowd(
        l, [target] { return make_backend(target, 1); }, crowds, 90);
    }
}

TEST_CASE("rows of a tree of guesses have the bits of the line that leads to them, and a state goes on behind any") {
  for (const isa target : tested_isas())
    for (const auto& l : layers()) {
      CAPTURE(l.name);
      CAPTURE(std::string(to_string(target)));
      check_trees(
        l, [target] { return make_backend(target, 2); }, 12);
    }
}

TEST_CASE("gates open before or behind a norm, by groups, of f32 and bf16") {
  const std::size_t rows = 9, cols = 60, group = 20;
  for (const isa target : tested_isas())
    for (const gate_norm norm : {gate_norm::none, gate_norm::before, gate_norm::after})
      for (const bool sigmoid : {false, true})
        for (const dtype type : compute_types) {
          const auto device = make_backend(target);
          auto& ops = dynamic_cast<recurrent_ops&>(*device);
          generator random(3);
          numbers x(type, random.normal(rows * cols)), gate(dtype::f32, random.normal(rows * cols, 2)),
            out(type, rows * cols);
          const auto weight = random.normal(cols);
          ops.gate(out.rows(rows), x.rows(rows), gate.rows(rows),
                   {.norm = norm, .weight = weight.data(), .eps = 1e-5f, .group = group, .sigmoid = sigmoid});
          const auto want = gated_rows_of(x, gate, weight, rows, group, norm, sigmoid);
          std::vector<double> tolerance;
          for (const double w : want)
            tolerance.push_back(std::abs(w) * (unit(type) + 40 * unit(dtype::f32)) + 1e-7);
          check_close(out.values(), want, tolerance, std::string(to_string(target)));
        }
}
