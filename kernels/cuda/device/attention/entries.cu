#include "kernels/cuda/device/attention/entries.hpp"

#include "kernels/cuda/device/elements.hpp"
#include "kernels/cuda/device/launch.hpp"

namespace troupe::kernels::cuda {

namespace {

/// A block has a row, a thread some elements.
struct average_kernel {
  static constexpr const char* name = "means of groups";
  static constexpr unsigned threads = 128;
  entries_params p;

  TROUPE_DEVICE void operator()() const {
    const std::size_t row = simt::block_x();
    const row_place place = p.places[row];
    const int dim = p.from.head_dim, rate = p.how.rate, first = place.position + 1 - rate;
    if ((place.position + 1) % rate != 0)
      return;
    const int before = p.how.overlaps && first > 0 ? rate : 0; // tokens of the group before
    for (int d = static_cast<int>(simt::thread()); d < dim; d += static_cast<int>(threads)) {
      float highest = -simt::infinity(), sum = 0, mean = 0;
      for (int t = -before; t < rate; ++t)
        highest = simt::larger(highest, gate(place, first, t, d));
      for (int t = -before; t < rate; ++t) {
        const float weight = simt::exp(gate(place, first, t, d) - highest);
        sum += weight;
        mean = simt::fused(weight, cell(place, first + t, head_of(t), d, false), mean);
      }
      p.means[row * dim + d] = mean / sum;
    }
  }

  /// Of token `t` of the group; those before it are below 0.
  TROUPE_DEVICE int head_of(int t) const { return t < 0 ? 0 : p.from.kv_heads - 1; }

  TROUPE_DEVICE float gate(const row_place& place, int first, int t, int d) const {
    const int head = head_of(t), of = t < 0 ? t + p.how.rate : t;
    const float bias = p.how.bias[(std::size_t(of) * p.from.kv_heads + head) * p.from.head_dim + d];
    return cell(place, first + t, head, d, true) + bias;
  }

  TROUPE_DEVICE float cell(const row_place& place, int position, int head, int d, bool value) const {
    const int token = position % block_tokens;
    const auto block = p.from.head(p.tables[place.first_block + position / block_tokens], head);
    const float x = load_cell(block.data, p.from.type, value ? block.value(token, d) : block.key(token, d));
    return is_scaled(p.from.type) ? simt::mul(x, block.scales()[(value ? block_tokens : 0) + token]) : x;
  }
};

/// A block has a head of a row.
struct undo_rotation_kernel {
  static constexpr const char* name = "undo_rotation";
  static constexpr unsigned threads = 128;
  tensor out, x;
  int dim, pairs;
  const float* angles;
  const row_place* places;

  TROUPE_DEVICE void operator()() const {
    const std::size_t row = simt::block_x(), head = std::size_t(simt::block_y()) * dim;
    const int half = dim / 2;
    const float* from = static_cast<const float*>(x.data) + row * x.stride + head;
    const float* turn = angles + std::size_t(places[row].position) * dim;
    const std::size_t to = row * out.stride + head, turned = to + dim - 2 * pairs;
    for (int i = static_cast<int>(simt::thread()); i < half; i += static_cast<int>(threads)) {
      const float a = from[i], b = from[half + i];
      if (i >= pairs) {
        store_float(out.data, out.type, to + i - pairs, a);
        store_float(out.data, out.type, to + half - pairs + i - pairs, b);
      } else {
        store_float(out.data, out.type, turned + 2 * i, simt::fused(a, turn[i], simt::mul(b, turn[half + i])));
        store_float(out.data, out.type, turned + 2 * i + 1, simt::fused(b, turn[i], -simt::mul(a, turn[half + i])));
      }
    }
  }
};

} // namespace

void average_groups(const stream& on, const entries_params& params) {
  launch(on, {static_cast<unsigned>(params.rows), 1}, 0, average_kernel{params});
}

void undo_rotation(const stream& on, const tensor& out, const tensor& x, int heads, int pairs, const float* angles,
                   const row_place* places) {
  const int dim = static_cast<int>(x.cols) / heads;
  launch(on, {static_cast<unsigned>(x.rows), static_cast<unsigned>(heads)}, 0,
         undo_rotation_kernel{out, x, dim, pairs, angles, places});
}

} // namespace troupe::kernels::cuda
