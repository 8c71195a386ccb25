// Convolutions whose taps are apart, and tokens before a row, as part of states under random schedules; and values that
// rows take as far as they agree. Shared by the tests of backends.
#pragma once

#include "kernels/gram_ops.hpp"
#include "tests/kernels/support.hpp"

#include <cmath>
#include <random>
#include <vector>

namespace troupe::kernels::testing {

inline constexpr int sc_channels = 530, sc_taps = 3, sc_spacing = 3, sc_rows = 60, sc_back = 2; // channels of two tasks

inline state_shape sc_shape(int running, int snapshots, int pending) {
  state_shape shape{.layers = 2,
                    .slots = running + snapshots,
                    .running = running,
                    .pending = pending,
                    .channels = 5,
                    .taps = 2,
                    .heads = 1,
                    .key_dim = 3,
                    .value_dim = 4};
  shape.spread = {{.channels = 1, .taps = sc_back + 1},
                  {.channels = sc_channels, .taps = sc_taps, .spacing = sc_spacing}};
  return shape;
}

struct spread_transcript {
  std::vector<float> x; // [rows, channels]
  std::vector<std::int32_t> tokens;
  std::vector<float> y; // what is expected
};

inline spread_transcript make_transcript(unsigned seed, const std::vector<float>& weight) {
  generator random(seed);
  spread_transcript t{random.normal(std::size_t(sc_rows) * sc_channels), {}, {}};
  for (int r = 0; r < sc_rows; ++r)
    t.tokens.push_back(r == 7 ? (1 << 24) - 2 : static_cast<std::int32_t>(random.below(1000)));
  for (int r = 0; r < sc_rows; ++r)
    for (int c = 0; c < sc_channels; ++c) {
      float sum = 0;
      for (int k = 0; k < sc_taps; ++k)
        if (const int from = r - (sc_taps - 1 - k) * sc_spacing; from >= 0)
          sum += t.x[std::size_t(from) * sc_channels + std::size_t(c)] *
            weight[std::size_t(k) * sc_channels + std::size_t(c)];
      t.y.push_back(sum / (1 + std::exp(-sum)));
    }
  return t;
}

/// Rows in a device's memory.
struct sc_rows_of {
  buffer memory;
  tensor view;

  sc_rows_of(backend& on, const std::vector<float>& all, std::size_t columns = sc_channels) : memory(on.upload(all)) {
    view = {memory.get(), dtype::f32, all.size() / columns, columns, columns};
  }
};

/// Random steps of two texts, with guesses, forks and snapshots, against what a backend gives at once, and that against
/// `make_transcript`.
inline void check_spread(backend& device) {
  generator weights(1);
  auto weight = weights.normal(std::size_t(sc_taps) * sc_channels, 0.5f);
  spread_transcript transcripts[] = {make_transcript(2, weight), make_transcript(3, weight)};
  std::mt19937 random(4);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  auto& grams = dynamic_cast<gram_ops&>(device);
  auto& ops = dynamic_cast<recurrent_ops&>(device);
  const auto taps = device.upload(weight);
  const auto convolve = [&](state_cache& states, const std::vector<float>& in) {
    const sc_rows_of from(device, in), to(device, std::vector<float>(in.size()));
    grams.convolve_spread(to.view, from.view, {static_cast<const float*>(taps.get()), nullptr, true}, states, 1);
    std::vector<float> out(in.size());
    device.download(out.data(), to.view);
    return out;
  };
  std::vector<std::unique_ptr<state_cache>> alive; // a device knows a step by its states' address and number
  for (auto& t : transcripts) {
    const auto& fresh = alive.emplace_back(ops.make_state_cache(sc_shape(1, 0, 0)));
    const sequence_rows all{0, sc_rows, 0, 0};
    const sequence_state own{0, 0};
    fresh->begin({&all, 1}, {&own, 1}, {});
    const auto at_once = convolve(*fresh, t.x);
    fresh->end();
    float worst = 0;
    for (std::size_t i = 0; i < at_once.size(); ++i)
      worst = std::max(worst, std::abs(at_once[i] - t.y[i]));
    CHECK(worst < 1e-5f);
    t.y = at_once;
  }
  const auto states = ops.make_state_cache(sc_shape(3, 2, 8));
  std::int32_t slots[] = {0, 1}, spare = 2;
  int done[] = {0, 0}, saved[] = {0, 0};
  bool equal = true;
  int replayed = 0, forks = 0;
  while (done[0] < sc_rows || done[1] < sc_rows) {
    std::vector<sequence_rows> sequences;
    std::vector<sequence_state> own;
    std::vector<state_save> saves;
    std::vector<float> in;
    std::vector<std::int32_t> tokens;
    std::vector<std::pair<int, int>> counted; // transcript, rows that stay
    for (int s = 0; s < 2; ++s) {
      if (done[s] == sc_rows || below(4) == 0)
        continue;
      const auto& t = transcripts[s];
      const int rows = std::min(sc_rows - done[s], 1 + below(12)),
                pending = below(2) == 0 ? 0 : below(std::min(8, rows) + 1),
                right = rows - pending + (pending > 0 ? below(pending + 1) : 0);
      sequences.push_back({static_cast<std::int32_t>(tokens.size()), rows, done[s], 0});
      own.push_back({slots[s], pending});
      for (int r = 0; r < rows; ++r) {
        const auto from = std::size_t(done[s] + r);
        tokens.push_back(r < right ? t.tokens[from] : 5);
        for (int c = 0; c < sc_channels; ++c)
          in.push_back(r < right ? t.x[from * sc_channels + std::size_t(c)] : 9.0f);
      }
      if (rows > pending && below(2) == 0) {
        saves.push_back({static_cast<std::int32_t>(counted.size()), 1 + below(rows - pending), 3 + s});
        saved[s] = done[s] + saves.back().rows;
      }
      replayed += right > rows - pending;
      counted.emplace_back(s, right);
    }
    if (counted.empty())
      continue;
    std::vector<std::int32_t> before(tokens.size() * sc_back);
    states->begin(sequences, own, saves);
    grams.recall_tokens(before.data(), tokens.data(), tokens.size(), *states, 0);
    const auto out = convolve(*states, in);
    states->end();
    for (std::size_t i = 0; i < counted.size(); ++i) {
      const auto [s, right] = counted[i];
      const auto& t = transcripts[s];
      for (int r = 0; r < right; ++r) {
        const auto row = std::size_t(sequences[i].first_row + r);
        for (int k = 0; k < sc_back; ++k) {
          const int from = done[s] + r - k - 1;
          equal = equal && before[row * sc_back + std::size_t(k)] == (from < 0 ? -1 : t.tokens[std::size_t(from)]);
        }
        equal = equal &&
          std::equal(&out[row * sc_channels], &out[row * sc_channels] + sc_channels,
                     &t.y[std::size_t(done[s] + r) * sc_channels]);
      }
      done[s] += right;
    }
    if (const int s = below(2); saved[s] > 0 && below(4) == 0) { // on from its snapshot, by way of host memory
      std::vector<char> form(states->shape.slot_bytes());
      const state_export from{3 + s, form.data()};
      ops.export_states(*states, {&from, 1});
      const state_import to{form.data(), 3 + s, saved[s]};
      ops.import_states(*states, {&to, 1});
      const state_copy copy{3 + s, spare};
      ops.copy_states(*states, {&copy, 1});
      std::swap(slots[s], spare);
      done[s] = saved[s];
      ++forks;
    }
  }
  CHECK(equal);
  CHECK(replayed > 2);
  CHECK(forks > 0);
}

inline void check_tree_tokens(backend& device) {
  auto& grams = dynamic_cast<gram_ops&>(device);
  const auto states = dynamic_cast<recurrent_ops&>(device).make_state_cache(sc_shape(1, 0, 8));
  const auto recall = [&](std::vector<sequence_rows> sequences, std::vector<sequence_state> own,
                          std::vector<std::int32_t> tokens) {
    std::vector<std::int32_t> before(tokens.size() * sc_back);
    states->begin(sequences, own, {});
    grams.recall_tokens(before.data(), tokens.data(), tokens.size(), *states, 0);
    states->end();
    return before;
  };
  CHECK(recall({{0, 3, 0, 0}}, {{0, 0}}, {10, 11, 12}) == std::vector<std::int32_t>{-1, -1, 10, -1, 11, 10});
  // 13 and its guess 14, then another guess behind 13: 15.
  CHECK(recall({{0, 2, 3, 0}, {2, 1, 4, 0}}, {{0, 2}, {0, 1, 1, true}}, {13, 14, 15}) ==
        std::vector<std::int32_t>{12, 11, 13, 12, 13, 12});
  // 13 and 15 were right.
  CHECK(recall({{0, 1, 5, 0}}, {{0, 0, 0b101}}, {16}) == std::vector<std::int32_t>{15, 13});
}

inline void check_agreement(backend& device) {
  constexpr std::size_t rows = 11, cols = 37;
  generator random(6);
  auto a = random.normal(rows * cols), b = random.normal(rows * cols), value = random.normal(rows * cols);
  std::fill_n(a.begin(), cols, 0.0f); // does not agree at all
  std::vector<float> out(rows * cols);
  const sc_rows_of x(device, a, cols), y(device, b, cols), of(device, value, cols), to(device, out, cols);
  dynamic_cast<gram_ops&>(device).take_agreed(to.view, x.view, y.view, of.view, 0.2f);
  device.download(out.data(), to.view);
  double worst = 0;
  for (std::size_t r = 0; r < rows; ++r) {
    double sum = 0;
    for (std::size_t c = 0; c < cols; ++c)
      sum += 0.2 * a[r * cols + c] * b[r * cols + c];
    const double root = std::copysign(std::sqrt(std::max(std::abs(sum), 1e-6)), sum) * (sum != 0);
    for (std::size_t c = 0; c < cols; ++c)
      worst = std::max(worst, std::abs(out[r * cols + c] - value[r * cols + c] / (1 + std::exp(-root))));
  }
  CHECK(worst < 1e-6);
}

} // namespace troupe::kernels::testing
