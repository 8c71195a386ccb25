// Recurrent layers on a GPU: what the CPU's are checked for (recurrent_checks.hpp), with shapes for every kernel.
#include "kernels/cuda/step_memory.hpp"
#include "tests/kernels/cuda/support.hpp"
#include "tests/kernels/recurrent_checks.hpp"
#include "tests/kernels/spread_checks.hpp"

using namespace troupe::kernels;
using namespace troupe::kernels::cuda::testing;

namespace {

backend_maker on_a_device() {
  return [] { return make_device(); };
}

} // namespace

TEST_SUITE_BEGIN("cuda");

TEST_CASE("CUDA: convolutions and recurrences agree with loops in double precision") {
  for (const auto& l : layers())
    check_reference(l, on_a_device(), 21, "small");
  using enum recurrence_type;
  // Blocks of every size; lanes of all splits; heads whose columns come one part after another.
  check_reference(make_layer(delta, 2, 1, 128, 128, 4, 7), on_a_device(), 9, "Qwen's");
  check_reference(make_layer(channel_delta, 1, 1, 100, 40, 8, 8), on_a_device(), 5, "eight taps");
  check_reference(make_layer(ssd, 2, 1, 256, 64, 1, 9), on_a_device(), 5, "one tap");
  check_reference(make_layer(ssd, 1, 1, 600, 30, 2, 10), on_a_device(), 4, "long keys");
  check_reference(make_layer(delta, 1, 1, 300, 150, 3, 11), on_a_device(), 3, "parts of heads");
  check_reference(make_layer(selective, 1, 0, 40, 130, 2, 15), on_a_device(), 3, "long keys, parts of heads");
  auto in_turns = make_layer(delta, 4, 2, 16, 24, 4, 12);
  in_turns.how.in_turns = true;
  check_reference(in_turns, on_a_device(), 6, "in turns");
}

TEST_CASE("CUDA: a state has the same bits in any chunks, with rows that are taken back, saves and copies") {
  const auto all = layers();
  for (const std::size_t i : is_sanitized ? std::vector<std::size_t>{0} : std::vector<std::size_t>{0, 1, 3, 4, 5, 6}) {
    CAPTURE(all[i].name);
    check_crowd(all[i], on_a_device(), {on_a_device()}, 48);
  }
  // Heads in parts, of which the last keeps what is pending.
  if (!is_sanitized) {
    check_crowd(make_layer(recurrence_type::delta, 1, 1, 80, 130, 4, 13), on_a_device(), {on_a_device()}, 14);
    check_crowd(make_layer(recurrence_type::selective, 1, 0, 8, 130, 4, 16), on_a_device(), {on_a_device()}, 14);
  }
}

TEST_CASE(
  "CUDA: rows of a tree of guesses have the bits of the line that leads to them, and a state goes on behind any") {
  const auto all = layers();
  for (const std::size_t i : is_sanitized ? std::vector<std::size_t>{0} : std::vector<std::size_t>{0, 1, 3, 4, 6}) {
    CAPTURE(all[i].name);
    check_trees(all[i], on_a_device(), 3);
  }
  if (!is_sanitized) // heads in parts
    check_trees(make_layer(recurrence_type::delta, 1, 1, 80, 130, 4, 13), on_a_device(), 2);
}

TEST_CASE("CUDA: a sequence that comes twice in a step goes on where it was, also behind rows that are pending") {
  for (const auto& l : {layers()[0], layers()[3], layers()[4], layers()[6]}) {
    CAPTURE(l.name);
    generator random(5);
    const auto in = random_inputs(l, 20, random);
    const auto width = std::size_t(l.inner());
    recurrent_engine alone(l, make_device(), 1, 1, 0), twice(l, make_device(), 3, 2, 4);
    const auto want = alone.step({{&in, 0, 20, 0, 0, 0}});
    // Of the four pending rows of slot 0, three are accepted, then both of two. What follows is also stored in slot 2.
    const auto got = twice.step({{&in, 0, 9, 0, 0, 4}, {&in, 0, 5, 0, 1, 0}, {&in, 8, 4, 8, 0, 2}, {&in, 12, 8, 12, 0}},
                                {{3, 5, 2}});
    const auto same = [&](const std::vector<float>& rows, std::size_t from, std::size_t position, std::size_t count) {
      return std::memcmp(&rows[from * width], &want[position * width], count * width * sizeof(float)) == 0;
    };
    CHECK(same(got, 0, 0, 8));
    CHECK(same(got, 9, 0, 5));
    CHECK(same(got, 14, 8, 4));
    CHECK(same(got, 18, 12, 8));
    CHECK(same(twice.step({{&in, 17, 3, 17, 2}}), 0, 17, 3));
  }
}

TEST_CASE("CUDA: spread convolutions and the tokens before depend on no chunks, guesses, forks or snapshots") {
  check_spread(*make_device());
  check_tree_tokens(*make_device());
}

TEST_CASE("CUDA: rows take of a value what the root of their agreement says") { check_agreement(*make_device()); }

TEST_CASE("CUDA: gates open before or behind a norm, by groups, of f32 and bf16, in place") {
  const auto device = make_device();
  auto& ops = dynamic_cast<recurrent_ops&>(*device);
  for (const std::size_t group : {std::size_t(20), std::size_t(300)})
    for (const gate_norm norm : {gate_norm::none, gate_norm::before, gate_norm::after})
      for (const bool sigmoid : {false, true})
        for (const dtype type : compute_types) {
          const std::size_t rows = 3, cols = 3 * group;
          generator random(3);
          const numbers x(type, random.normal(rows * cols)), gate(dtype::f32, random.normal(rows * cols, 2));
          const auto weight = random.normal(cols);
          const device_tensor in(*device, x, rows), out(*device, type, rows, cols), gates(*device, gate, rows),
            weights(*device, wide(weight), 1);
          const gated_rows how{
            .norm = norm, .weight = weights.floats(), .eps = 1e-5f, .group = group, .sigmoid = sigmoid};
          ops.gate(out.view, in.view, gates.view, how);
          ops.gate(in.view, in.view, gates.view, how);
          CHECK(in.read() == out.read());
          const auto want = gated_rows_of(x, gate, weight, rows, group, norm, sigmoid);
          std::vector<double> tolerance;
          for (const double w : want)
            tolerance.push_back(std::abs(w) * (unit(type) + 40 * unit(dtype::f32)) + 1e-7);
          check_close(out.read().values(), want, tolerance, std::to_string(group));
        }
}

TEST_CASE("CUDA: rows are multiplied element by element, with strides, in place and into bf16") {
  const auto device = make_device();
  auto& ops = dynamic_cast<recurrent_ops&>(*device);
  const std::size_t rows = 3, cols = 333;
  generator random(4);
  const numbers both(dtype::f32, random.normal(rows * 2 * cols));
  const device_tensor in(*device, both, rows), narrow(*device, dtype::bf16, rows, cols);
  tensor a = in.view, b = in.view;
  a.cols = b.cols = cols;
  b.data = static_cast<float*>(b.data) + cols;
  ops.multiply(narrow.view, a, b);
  ops.multiply(a, a, b);
  const auto got = in.read();
  std::vector<float> products;
  bool equal = true;
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t c = 0; c < cols; ++c) {
      products.push_back(both.wide[r * 2 * cols + c] * both.wide[r * 2 * cols + cols + c]);
      equal = equal && got.wide[r * 2 * cols + c] == products.back();
    }
  CHECK(equal);
  CHECK(narrow.read() == numbers(dtype::bf16, products));
}

TEST_CASE("CUDA: what a step does to states is not what a step did to others that were at the same address") {
  const auto device = make_device();
  cuda::step_memory inputs;
  std::optional<state_cache> states;
  const sequence_rows who{0, 1, 0, 0};
  for (const std::int32_t slot : {0, 1}) {
    const sequence_state own{slot};
    states.emplace(make_layer(recurrence_type::delta, 2, 1, 16, 16, 4, 1).shape(2, 2, 0));
    states->begin({&who, 1}, {&own, 1}, {});
    cuda::state_run seen;
    copy_to_host(device->queue(), &seen, inputs.states(device->queue(), *states).runs, sizeof seen);
    device->queue().synchronise();
    CHECK(seen.slot == slot);
  }
}

TEST_CASE("CUDA: states and rows of shapes that kernels do not take are refused") {
  const auto device = make_device();
  auto& ops = dynamic_cast<recurrent_ops&>(*device);
  const auto l = make_layer(recurrence_type::delta, 2, 1, 16, 16, 4, 1);
  auto shape = l.shape(2, 1, 0);
  const auto states = ops.make_state_cache(shape);
  const device_tensor rows(*device, dtype::f32, 2, std::size_t(l.channels())), other(*device, dtype::f32, 2, 8);
  CHECK_THROWS_AS(ops.convolve(rows.view, other.view, {}, *states, 0), std::invalid_argument);
  CHECK_THROWS_AS(ops.convolve(rows.view, rows.view, {}, *states, 2), std::invalid_argument);
  CHECK_THROWS_AS(ops.recur(other.view, rows.view, other.view, other.view, l.how, *states, 0), std::invalid_argument);
  CHECK_THROWS_AS(ops.gate(other.view, other.view, other.view, {.norm = gate_norm::after}), std::invalid_argument);
  CHECK_THROWS_AS(ops.multiply(other.view, rows.view, other.view), std::invalid_argument);
  shape.taps = 9;
  CHECK_THROWS_AS(ops.make_state_cache(shape), std::invalid_argument);
  shape.taps = 4;
  shape.key_dim = 1025;
  CHECK_THROWS_AS(ops.make_state_cache(shape), std::invalid_argument);
}

TEST_SUITE_END();
