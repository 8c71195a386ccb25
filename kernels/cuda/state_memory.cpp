#include "kernels/cuda/state_memory.hpp"

#include <algorithm>
#include <cstring>

namespace troupe::kernels::cuda {

namespace {

void expect_shape(bool holds, const char* message) {
  if (!holds)
    throw std::invalid_argument(message);
}

} // namespace

device_state_cache::device_state_cache(const state_shape& wanted) : state_cache(wanted) {
  constexpr int most_in_y = 65535; // blocks of a grid: heads
  expect_shape((shape.layers > 0 || !shape.spread.empty()) && shape.slots >= shape.running && shape.running >= 0,
               "a state cache needs layers and slots");
  expect_shape(shape.layers == 0 || (shape.taps > 0 && shape.taps <= most_convolution_taps && shape.channels > 0),
               "the CUDA backend's convolutions have 1 to 8 taps");
  expect_shape(shape.heads >= 0 && shape.heads <= most_in_y && shape.key_dim <= most_key_dim,
               "the CUDA backend's recurrences have keys of up to 1024 dimensions");
  states_ = cuda::allocate(std::max<std::size_t>(1, static_cast<std::size_t>(shape.slots) * shape.slot_bytes()));
  logs_ = cuda::allocate(std::max<std::size_t>(1, static_cast<std::size_t>(shape.running) * shape.log_bytes()));
}

layer_states device_state_cache::layer(int index) const {
  expect_shape(index >= 0 && index < shape.layers, "states of a layer that has none");
  const auto i = static_cast<std::size_t>(index);
  layer_states to;
  to.states = static_cast<float*>(states_.get()) + i * shape.state();
  to.slot_stride = shape.slot_bytes() / sizeof(float);
  to.logs = static_cast<float*>(logs_.get()) + i * shape.log();
  to.log_stride = shape.log_bytes() / sizeof(float);
  to.pending = shape.pending;
  to.channels = shape.channels;
  to.taps = shape.taps;
  to.tail = shape.tail();
  to.value_stride = shape.value_stride();
  to.head_log = shape.head_log();
  return to;
}

layer_states device_state_cache::spread(int index) const {
  const auto i = static_cast<std::size_t>(index);
  const auto& own = shape.spread.at(i);
  layer_states to;
  to.states = static_cast<float*>(states_.get()) + shape.spread_before(i);
  to.slot_stride = shape.slot_bytes() / sizeof(float);
  to.logs = static_cast<float*>(logs_.get()) + shape.spread_log_before(i);
  to.log_stride = shape.log_bytes() / sizeof(float);
  to.pending = shape.pending;
  to.channels = own.channels;
  to.taps = own.taps;
  to.tail = own.tail();
  return to;
}

void device_state_cache::copy(const stream& on, std::span<const state_copy> copies) {
  copied(copies);
  const auto at = [this](std::int32_t slot) {
    return static_cast<char*>(states_.get()) + static_cast<std::size_t>(slot) * shape.slot_bytes();
  };
  for (const auto& c : copies)
    if (c.from != c.to)
      copy_on_device(on, at(c.to), at(c.from), shape.slot_bytes());
}

void device_state_cache::copy_out(const stream& on, std::span<const state_export> out) const {
  expect_settled(out);
  for (const auto& each : out)
    copy_to_host(on, each.to,
                 static_cast<const char*>(states_.get()) + static_cast<std::size_t>(each.slot) * shape.slot_bytes(),
                 shape.slot_bytes());
  if (!out.empty())
    on.synchronise();
}

void device_state_cache::copy_in(const stream& on, std::span<const state_import> in) {
  imported(in);
  for (const auto& each : in)
    copy_to_device(on, static_cast<char*>(states_.get()) + static_cast<std::size_t>(each.slot) * shape.slot_bytes(),
                   each.from, shape.slot_bytes());
  if (!in.empty())
    on.synchronise();
}

std::vector<std::uint32_t> words_of_runs(const state_cache& of, std::size_t count) {
  static_assert(sizeof(state_run) % sizeof(std::uint32_t) == 0);
  const auto& runs = of.runs();
  std::vector<state_run> to(std::max(count, runs.size()));
  std::vector<std::int32_t> saves;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const auto& r = runs[i];
    to[i] = {r.replayed,
             r.first_row,
             r.rows,
             r.slot,
             r.fresh ? 1 : 0,
             r.pending,
             r.logged,
             r.branch ? 1 : 0,
             static_cast<std::int32_t>(saves.size() / 2),
             static_cast<std::int32_t>(r.saves.size()),
             r.next,
             0,
             0};
    for (const auto& save : r.saves)
      saves.insert(saves.end(), {save.rows, save.slot});
  }
  for (const auto first : of.first_runs())
    to[static_cast<std::size_t>(first)].begins = 1;
  std::vector<std::uint32_t> words(to.size() * sizeof(state_run) / sizeof(std::uint32_t) + saves.size());
  auto* at = reinterpret_cast<char*>(words.data());
  std::memcpy(at, to.data(), to.size() * sizeof(state_run));
  if (!saves.empty())
    std::memcpy(at + to.size() * sizeof(state_run), saves.data(), saves.size() * sizeof(std::int32_t));
  return words;
}

} // namespace troupe::kernels::cuda
