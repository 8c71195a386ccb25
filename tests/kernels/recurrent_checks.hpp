// Shared by tests of recurrent layers on a CPU and on a GPU: layers, loops in double precision, states under random
// schedules, gates.
#pragma once

#include "kernels/recurrent.hpp"
#include "tests/kernels/support.hpp"

#include <bit>
#include <functional>
#include <memory>
#include <numeric>
#include <utility>

namespace troupe::kernels::testing {

struct layer {
  std::string name;
  recurrence how;
  int taps = 4;
  bool biased = true, silu = true;
  std::vector<float> weight = {}, bias = {}, decay = {}, dt_bias = {}, skip = {};

  int inner() const { return how.heads * how.value_dim; }
  int channels() const { return inner() + 2 * how.key_heads * how.key_dim; }
  bool scans() const { return how.type == recurrence_type::selective; }
  int rates() const {
    return scans() ? inner() : how.heads * (how.type == recurrence_type::channel_delta ? how.key_dim : 1);
  }
  int betas() const { return scans() ? 2 * how.key_dim : how.heads; } // or B and C
  state_shape shape(int slots, int running, int pending) const {
    return {.layers = 2,
            .slots = slots,
            .running = running,
            .pending = pending,
            .channels = channels(),
            .taps = taps,
            .heads = how.heads,
            .key_dim = how.key_dim,
            .value_dim = how.value_dim,
            .decays = how.type == recurrence_type::channel_delta,
            .rates = scans()};
  }
};

inline layer make_layer(recurrence_type type, int heads, int key_heads, int key_dim, int value_dim, int taps,
                        unsigned seed) {
  generator random(seed);
  layer l{.name = "type " + std::to_string(static_cast<int>(type)) + ", " + std::to_string(value_dim),
          .how = {.type = type, .heads = heads, .key_heads = key_heads, .key_dim = key_dim, .value_dim = value_dim},
          .taps = taps,
          .biased = seed % 2 == 0};
  l.weight = random.normal(std::size_t(taps) * l.channels(), 0.5f);
  l.bias = random.normal(std::size_t(l.channels()), 0.3f);
  l.decay = random.normal(std::size_t(l.scans() ? key_dim * l.inner() : heads));
  for (auto& d : l.decay)
    d = -std::exp(d);
  l.dt_bias = random.normal(std::size_t(l.rates()));
  l.skip = random.normal(std::size_t(l.scans() ? l.inner() : heads));
  if (type == recurrence_type::ssd)
    l.how.least_dt = 0.05f, l.how.most_dt = 2;
  return l;
}

inline std::vector<layer> layers() {
  using enum recurrence_type;
  return {make_layer(delta, 4, 2, 16, 24, 4, 1),     make_layer(delta, 3, 3, 7, 5, 3, 2),
          make_layer(delta, 2, 1, 64, 96, 4, 3),     make_layer(channel_delta, 2, 2, 16, 16, 4, 4),
          make_layer(ssd, 4, 1, 16, 16, 4, 5),       make_layer(ssd, 6, 3, 9, 40, 2, 6),
          make_layer(selective, 2, 0, 16, 24, 4, 14)};
}

/// A transcript's inputs: [rows, channels | rates | betas].
struct inputs {
  std::vector<float> x, rates, betas;
};

inline inputs random_inputs(const layer& l, std::size_t rows, generator& random) {
  return {random.normal(rows * std::size_t(l.channels())), random.normal(rows * std::size_t(l.rates())),
          random.normal(rows * std::size_t(l.betas()))};
}

inline double softplus_of(double x) { return std::log1p(std::exp(x)); }

/// Row by row in double precision.
inline std::vector<double> expected(const layer& l, const inputs& in, std::size_t rows) {
  const auto& h = l.how;
  const auto channels = std::size_t(l.channels());
  std::vector<double> out, x(rows * channels);
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t c = 0; c < channels; ++c) {
      double y = l.biased ? l.bias[c] : 0;
      for (int t = 0; t < l.taps; ++t)
        if (const auto from = std::ptrdiff_t(r) - l.taps + 1 + t; from >= 0)
          y += double(in.x[std::size_t(from) * channels + c]) * l.weight[std::size_t(t) * channels + c];
      x[r * channels + c] = y / (1 + std::exp(-y));
    }
  const auto dim = std::size_t(h.key_dim), values = std::size_t(h.value_dim), heads = std::size_t(h.heads);
  std::vector<std::vector<double>> states(heads, std::vector<double>(dim * values));
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t head = 0; head < heads; ++head) {
      auto& s = states[head];
      const auto* row = &x[r * channels];
      if (l.scans()) {
        const auto *b = &in.betas[r * 2 * dim], *c = b + dim;
        for (std::size_t v = 0; v < values; ++v) {
          const auto all = heads * values, at = head * values + v;
          const double dt = softplus_of(double(in.rates[r * all + at]) + l.dt_bias[at]);
          double y = row[at] * l.skip[at];
          for (std::size_t k = 0; k < dim; ++k) {
            auto& e = s[k * values + v];
            e = e * std::exp(dt * l.decay[k * all + at]) + dt * row[at] * b[k];
            y += e * c[k];
          }
          out.push_back(y);
        }
        continue;
      }
      const auto group = h.in_turns ? head % std::size_t(h.key_heads) : head / (heads / std::size_t(h.key_heads)),
                 keys = std::size_t(h.key_heads) * dim;
      if (h.type == recurrence_type::ssd) {
        double dt = softplus_of(double(in.rates[r * heads + head]) + l.dt_bias[head]);
        dt = std::min<double>(std::max<double>(dt, h.least_dt), h.most_dt);
        const auto *b = row + heads * values + group * dim, *c = b + keys;
        for (std::size_t v = 0; v < values; ++v) {
          const double own = row[head * values + v];
          double y = own * l.skip[head];
          for (std::size_t k = 0; k < dim; ++k) {
            auto& e = s[k * values + v];
            e = e * std::exp(dt * l.decay[head]) + dt * own * b[k];
            y += e * c[k];
          }
          out.push_back(y);
        }
        continue;
      }
      const auto unit_vector = [&](const double* from) {
        double sum = 1e-6;
        for (std::size_t k = 0; k < dim; ++k)
          sum += from[k] * from[k];
        std::vector<double> to(from, from + dim);
        for (auto& v : to)
          v /= std::sqrt(sum);
        return to;
      };
      const auto q = unit_vector(row + group * dim), key = unit_vector(row + keys + group * dim);
      const double beta = 1 / (1 + std::exp(-double(in.betas[r * heads + head])));
      const bool by_channel = h.type == recurrence_type::channel_delta;
      for (std::size_t v = 0; v < values; ++v) {
        double known = 0, y = 0;
        for (std::size_t k = 0; k < dim; ++k) {
          const auto at = by_channel ? head * dim + k : head;
          const double rate = in.rates[r * std::size_t(l.rates()) + at];
          s[k * values + v] *= std::exp(l.decay[head] * softplus_of(rate + l.dt_bias[at]));
          known += s[k * values + v] * key[k];
        }
        const double learned = beta * (row[2 * keys + head * values + v] - known);
        for (std::size_t k = 0; k < dim; ++k) {
          s[k * values + v] += key[k] * learned;
          y += s[k * values + v] * q[k] / std::sqrt(double(dim));
        }
        out.push_back(y);
      }
    }
  return out;
}

/// A backend with the states of a layer's sequences.
class recurrent_engine {
public:
  recurrent_engine(const layer& l, std::unique_ptr<backend> device, int slots, int running, int pending)
    : layer_(l), device_(std::move(device)), ops_(dynamic_cast<recurrent_ops&>(*device_)) {
    states_ = ops_.make_state_cache(l.shape(slots, running, pending));
    weight_ = device_->upload(l.weight);
    bias_ = device_->upload(l.bias);
    decay_ = device_->upload(l.decay);
    dt_bias_ = device_->upload(l.dt_bias);
    skip_ = device_->upload(l.skip);
    layer_.how.decay = floats(decay_);
    layer_.how.dt_bias = floats(dt_bias_);
    layer_.how.skip = floats(skip_);
  }

  struct chunk {
    const inputs* in = nullptr;
    std::size_t from = 0; // rows of the inputs
    std::int32_t rows = 0, position = 0, slot = 0, pending = 0;
    std::uint64_t behind = 0; // see sequence_state
    bool branch = false;
  };

  /// What each chunk's rows give, one after another.
  std::vector<float> step(const std::vector<chunk>& chunks, const std::vector<state_save>& saves = {}) {
    std::vector<sequence_rows> sequences;
    std::vector<sequence_state> slots;
    inputs all;
    std::int32_t rows = 0;
    for (const auto& c : chunks) {
      sequences.push_back({.first_row = rows, .rows = c.rows, .first_position = c.position});
      slots.push_back({c.slot, c.pending, c.behind, c.branch});
      rows += c.rows;
      const auto append = [&](std::vector<float>& to, const std::vector<float>& from, int cols) {
        const auto first = from.begin() + std::ptrdiff_t(c.from) * cols;
        to.insert(to.end(), first, first + std::ptrdiff_t(c.rows) * cols);
      };
      append(all.x, c.in->x, layer_.channels());
      append(all.rates, c.in->rates, layer_.rates());
      append(all.betas, c.in->betas, layer_.betas());
    }
    const auto count = std::size_t(rows), channels = std::size_t(layer_.channels()),
               inner = std::size_t(layer_.inner());
    const auto in = device_->upload(all.x), rates = device_->upload(all.rates), betas = device_->upload(all.betas),
               convolved = device_->allocate(count * channels * sizeof(float)),
               out = device_->allocate(count * inner * sizeof(float));
    const auto of = [&](const buffer& memory, std::size_t cols) {
      return tensor{memory.get(), dtype::f32, count, cols, cols};
    };
    states_->begin(sequences, slots, saves);
    const convolution conv{floats(weight_), layer_.biased ? floats(bias_) : nullptr, layer_.silu};
    ops_.convolve(of(convolved, channels), of(in, channels), conv, *states_, 1);
    ops_.recur(of(out, inner), of(convolved, channels), of(rates, std::size_t(layer_.rates())),
               of(betas, std::size_t(layer_.betas())), layer_.how, *states_, 1);
    states_->end();
    std::vector<float> result(count * inner);
    device_->download(result.data(), of(out, inner));
    return result;
  }

  void copy(const std::vector<state_copy>& copies) { ops_.copy_states(*states_, copies); }

  /// The same, by way of memory outside.
  void carry(std::int32_t from, std::int32_t to, std::int32_t position) {
    std::vector<char> outside(states_->shape.slot_bytes());
    const state_export out{from, outside.data()};
    ops_.export_states(*states_, {&out, 1});
    const state_import in{outside.data(), to, position};
    ops_.import_states(*states_, {&in, 1});
  }

private:
  static const float* floats(const buffer& memory) { return static_cast<const float*>(memory.get()); }

  layer layer_;
  std::unique_ptr<backend> device_;
  recurrent_ops& ops_;
  std::unique_ptr<state_cache> states_;
  buffer weight_, bias_, decay_, dt_bias_, skip_;
};

using backend_maker = std::function<std::unique_ptr<backend>()>;

/// Compares with loops in double precision.
inline void check_reference(const layer& l, const backend_maker& make, std::size_t rows, const std::string& what) {
  generator random(7);
  const auto in = random_inputs(l, rows, random);
  recurrent_engine e(l, make(), 1, 1, 0);
  const auto got = e.step({{&in, 0, std::int32_t(rows), 0, 0, 0}});
  const auto want = expected(l, in, rows);
  double size = 0;
  for (const double w : want)
    size += w * w;
  size = std::sqrt(size / double(want.size()));
  std::vector<double> tolerance;
  for (const double w : want)
    tolerance.push_back((std::abs(w) + 3 * size) * 200 * unit(dtype::f32));
  check_close({got.begin(), got.end()}, want, tolerance, what + " " + l.name);
}

/// Bits of `rows` rows of three sequences: each alone on a backend, and together in chunks, with rows that are taken
/// back, saves and copies on each of `crowds`.
inline void check_crowd(const layer& l, const backend_maker& make, const std::vector<backend_maker>& crowds,
                        std::size_t rows) {
  generator random(11);
  const std::size_t width = std::size_t(l.inner());
  const int sequences = 3, pending = 4;
  std::vector<inputs> in, wrong;
  std::vector<std::vector<float>> solo;
  for (int s = 0; s < sequences; ++s) {
    in.push_back(random_inputs(l, rows, random));
    wrong.push_back(random_inputs(l, rows, random));
    recurrent_engine alone(l, make(), 1, 1, 0);
    solo.push_back(alone.step({{&in.back(), 0, std::int32_t(rows), 0, 0, 0}}));
  }
  for (const auto& make_crowd : crowds) {
    // Slots 0 to 2 run, 3 is spare, 4 to 6 are snapshots.
    recurrent_engine e(l, make_crowd(), 7, 4, pending);
    std::vector<std::size_t> done(sequences, 0), saved(sequences, 0);
    std::vector<std::int32_t> slots{0, 1, 2};
    std::int32_t spare = 3;
    bool equal = true;
    while (std::ranges::any_of(done, [&](auto d) { return d < rows; })) {
      std::vector<recurrent_engine::chunk> chunks;
      std::vector<state_save> saves;
      std::vector<std::shared_ptr<inputs>> alive;
      std::vector<std::pair<int, std::size_t>> counted; // sequence, right rows
      for (int s = 0; s < sequences; ++s) {
        if (done[s] == rows || random.below(3) == 0)
          continue;
        const auto left = std::int32_t(rows - done[s]);
        const auto count = std::min(left, 1 + random.below(random.below(4) == 0 ? 40 : 6));
        const bool guesses = random.below(2) == 0;
        const auto kept = guesses ? std::max(count - pending, random.below(2)) : count;
        const bool right = random.below(2) == 0;
        // Where guesses are wrong, other inputs follow the kept rows: a chunk of its own inputs.
        auto mixed = std::make_shared<inputs>(in[std::size_t(s)]);
        if (guesses && !right) {
          const auto replace = [&](std::vector<float>& to, const std::vector<float>& from, int cols) {
            const auto first = std::ptrdiff_t(done[s] + std::size_t(kept)) * cols;
            std::copy(from.begin() + first, from.end(), to.begin() + first);
          };
          replace(mixed->x, wrong[std::size_t(s)].x, l.channels());
          replace(mixed->rates, wrong[std::size_t(s)].rates, l.rates());
          replace(mixed->betas, wrong[std::size_t(s)].betas, l.betas());
        }
        alive.push_back(mixed);
        chunks.push_back(
          {mixed.get(), done[s], count, std::int32_t(done[s]), slots[std::size_t(s)], guesses ? count - kept : 0});
        if (kept > 0 && random.below(2) == 0) {
          saves.push_back({std::int32_t(chunks.size()) - 1, 1 + random.below(kept), 4 + s});
          saved[std::size_t(s)] = done[s] + std::size_t(saves.back().rows);
        }
        // Of right guesses, some are accepted.
        const auto accepted = guesses && right ? kept + random.below(count - kept + 1) : kept;
        counted.emplace_back(s, std::size_t(accepted));
      }
      if (chunks.empty())
        continue;
      const auto got = e.step(chunks, saves);
      std::size_t at = 0;
      for (std::size_t i = 0; i < chunks.size(); ++i) {
        const auto [s, right] = counted[i];
        equal = equal &&
          std::memcmp(&got[at * width], &solo[std::size_t(s)][done[std::size_t(s)] * width],
                      right * width * sizeof(float)) == 0;
        at += std::size_t(chunks[i].rows);
        done[std::size_t(s)] += right;
      }
      // Now and then a sequence goes on in another slot, from a snapshot that was copied, or was outside meanwhile.
      const auto s = std::size_t(random.below(sequences));
      if (saved[s] > 0 && random.below(4) == 0) {
        if (random.below(2) == 0)
          e.copy({{std::int32_t(4 + s), spare}});
        else
          e.carry(std::int32_t(4 + s), spare, std::int32_t(saved[s]));
        done[s] = saved[s];
        std::swap(slots[s], spare);
      }
    }
    CHECK(equal);
  }
}

/// Random trees of guesses of two sequences in the same steps: each row has the bits of the line that leads to it, and
/// sequences go on behind any of them.
inline void check_trees(const layer& l, const backend_maker& make, int steps) {
  constexpr int sequences = 2, known = 2, guesses = 6;
  generator random(13);
  const std::size_t width = std::size_t(l.inner());
  recurrent_engine alone(l, make(), 1, 1, 0), e(l, make(), sequences, sequences, guesses);
  const auto pool = random_inputs(l, 60, random);
  const auto of_rows = [&](const std::vector<int>& rows) {
    inputs some;
    for (const int row : rows) {
      const auto append = [row](std::vector<float>& to, const std::vector<float>& from, int cols) {
        const auto first = from.begin() + std::ptrdiff_t(row) * cols;
        to.insert(to.end(), first, first + cols);
      };
      append(some.x, pool.x, l.channels());
      append(some.rates, pool.rates, l.rates());
      append(some.betas, pool.betas, l.betas());
    }
    return std::make_shared<const inputs>(std::move(some));
  };
  std::vector<std::vector<int>> texts(sequences);
  std::vector<std::uint64_t> behind(sequences, 0);
  bool equal = true;
  for (int step = 0; step < steps; ++step) {
    std::vector<recurrent_engine::chunk> chunks;
    std::vector<std::shared_ptr<const inputs>> alive;
    std::vector<std::vector<int>> lines; // what leads to each row of the step, with it
    for (std::int32_t s = 0; s < sequences; ++s) {
      auto& text = texts[std::size_t(s)];
      std::vector<int> rows;
      std::vector<std::uint64_t> paths;
      std::vector<std::vector<int>> own;
      const auto position = std::int32_t(text.size());
      for (int i = 0; i < known; ++i) {
        rows.push_back(random.below(60));
        text.push_back(rows.back());
        own.push_back(text);
      }
      std::vector<std::pair<int, int>> starts{{0, -1}}; // of lines: their first row, and the guess before it
      for (int g = 0; g < guesses; ++g) {
        const int parent = random.below(2) == 0 ? g - 1 : random.below(g + 1) - 1;
        if (parent != g - 1)
          starts.emplace_back(known + g, parent);
        rows.push_back(random.below(60));
        paths.push_back((parent < 0 ? 0 : paths[std::size_t(parent)]) | std::uint64_t(1) << g);
        own.push_back(parent < 0 ? text : own[std::size_t(known + parent)]);
        own.back().push_back(rows.back());
      }
      alive.push_back(of_rows(rows));
      for (std::size_t i = 0; i < starts.size(); ++i) {
        const auto [first, parent] = starts[i];
        const auto end = i + 1 < starts.size() ? starts[i + 1].first : known + guesses;
        const auto before = parent < 0 ? 0 : paths[std::size_t(parent)];
        chunks.push_back({alive.back().get(), std::size_t(first), end - first,
                          i == 0 ? position : position + known + std::popcount(before), s,
                          i == 0 ? end - known : end - first, i == 0 ? behind[std::size_t(s)] : before, i > 0});
      }
      lines.insert(lines.end(), own.begin(), own.end());
      const int right = random.below(guesses + 1) - 1;
      behind[std::size_t(s)] = right < 0 ? 0 : paths[std::size_t(right)];
      if (right >= 0)
        text = own[std::size_t(known + right)];
    }
    const auto got = e.step(chunks);
    for (std::size_t row = 0; row < lines.size(); ++row) {
      const auto whole = of_rows(lines[row]);
      const auto want = alone.step({{whole.get(), 0, std::int32_t(lines[row].size()), 0, 0, 0}});
      equal = equal && std::memcmp(&got[row * width], &want[want.size() - width], width * sizeof(float)) == 0;
    }
  }
  CHECK(equal);
}

/// What gates with this norm, with an epsilon of 1e-5, give in double precision.
inline std::vector<double> gated_rows_of(const numbers& x, const numbers& gate, const std::vector<float>& weight,
                                         std::size_t rows, std::size_t group, gate_norm norm, bool sigmoid) {
  const std::size_t cols = weight.size();
  std::vector<double> want;
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t first = 0; first < cols; first += group) {
      std::vector<double> part;
      const auto open = [&](std::size_t c) {
        const double g = gate[r * cols + c];
        return (sigmoid ? 1 : g) / (1 + std::exp(-g));
      };
      for (std::size_t c = first; c < first + group; ++c)
        part.push_back(x[r * cols + c] * (norm == gate_norm::before ? 1 : open(c)));
      if (norm != gate_norm::none)
        part = reference::rms_norm(part, weight.data() + first, 1e-5f);
      for (std::size_t c = first; c < first + group; ++c)
        want.push_back(part[c - first] * (norm == gate_norm::before ? open(c) : 1));
    }
  return want;
}

} // namespace troupe::kernels::testing
