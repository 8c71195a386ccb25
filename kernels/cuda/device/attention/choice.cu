#include "kernels/cuda/device/attention/choice.hpp"

#include "kernels/cuda/device/elements.hpp"
#include "kernels/cuda/device/launch.hpp"
#include "kernels/cuda/device/sampling_arithmetic.hpp"

namespace troupe::kernels::cuda {

namespace {

/// A thread has a key that a row sees, and its products with several heads at a time. `Grouped`: positions share keys.
template <kv_type Type, bool Grouped>
struct score_kernel {
  static constexpr const char* name = "scores of positions";
  static constexpr unsigned threads = 256;
  static constexpr int heads_at_once = 16;
  choice_params p;
  int first;

  TROUPE_DEVICE void operator()() const {
    const int row = first + static_cast<int>(simt::block_x()), start = static_cast<int>(simt::block_y() * threads);
    const row_place place = p.places[row];
    const int seen = p.keys_seen(place.position);
    if (!p.chooses(place.position) || start >= seen)
      return;
    const int dim = p.keys.head_dim, thread = static_cast<int>(simt::thread());
    const int index = at_most(start + thread, seen - 1); // some repeat the last
    const int position = Grouped ? index * p.groups.size : (index + 1) * p.rate - 1, token = position % block_tokens;
    const auto block = p.keys.head(p.tables[place.first_block + position / block_tokens], 0);
    const float scale = is_scaled(Type) && !Grouped ? p.keys.scales(block)[token] : 1;
    const group_key group(*this, block, token, place, position);
    auto* queries = reinterpret_cast<float*>(simt::shared()); // [dim][heads_at_once]
    float* to = p.scores + simt::block_x() * p.choices() * p.width + index;
    float sum = 0;
    for (int head = 0; head < p.heads; head += heads_at_once) {
      const int count = at_most(p.heads - head, heads_at_once);
      const float* from = p.queries + row * p.queries_stride + std::size_t(head) * dim;
      simt::sync_block();
      for (int i = thread; i < heads_at_once * dim; i += static_cast<int>(threads))
        queries[i % dim * heads_at_once + i / dim] = i < count * dim ? from[i] : 0;
      simt::sync_block();
      float products[heads_at_once];
#pragma unroll
      for (int h = 0; h < heads_at_once; ++h)
        products[h] = 0;
      for (int d = 0; d < dim; ++d) {
        const float key = Grouped ? group.element(d) : load_cell(block.data, Type, block.key(token, d));
#pragma unroll
        for (int h = 0; h < heads_at_once; h += 4) {
          const auto four = *reinterpret_cast<const words4*>(queries + d * heads_at_once + h);
#pragma unroll
          for (int i = 0; i < 4; ++i)
            products[h + i] = simt::fused(simt::bits_to_float(word_of(four, i)), key, products[h + i]);
        }
      }
#pragma unroll
      for (int h = 0; h < heads_at_once; ++h)
        if (h < count && p.weights == nullptr)
          to[(head + h) * p.width] = simt::mul(products[h], scale);
        else if (h < count)
          sum = simt::fused(p.weights[row * p.weights_stride + head + h],
                            simt::maximum(simt::mul(products[h], scale), 0), sum);
    }
    if (p.weights != nullptr)
      *to = sum;
  }

  /// The key of a group: the mean of its positions' keys, normed, and rotated as the first of them. Made element by
  /// element, as there is no room for all of them. Empty without groups.
  struct group_key {
    const score_kernel& of;
    head_block block;
    int token;
    const float* angles = nullptr;
    float scale = 1;

    TROUPE_DEVICE group_key(const score_kernel& of, head_block block, int token, const row_place& place, int position)
      : of(of), block(block), token(token) {
      if constexpr (Grouped) {
        const auto& how = of.p.groups;
        const int dim = of.p.keys.head_dim;
        const bool longer = how.rope.longer != nullptr && place.length > how.rope.border;
        const float* table = longer ? how.rope.longer : how.rope.angles;
        angles = table != nullptr ? table + std::size_t(position) * dim : nullptr;
        float squares = 0;
        for (int d = 0; d < dim; ++d) {
          const float x = mean(d);
          squares = simt::fused(x, x, squares);
        }
        scale = simt::inverse_sqrt(squares / static_cast<float>(dim) + how.eps);
      }
    }

    TROUPE_DEVICE float mean(int d) const {
      float sum = 0;
      for (int i = token; i < token + of.p.groups.size; ++i) {
        const float key = load_cell(block.data, Type, block.key(i, d));
        sum = is_scaled(Type) ? simt::fused(key, of.p.keys.scales(block)[i], sum) : simt::add(key, sum);
      }
      return sum / static_cast<float>(of.p.groups.size);
    }
    TROUPE_DEVICE float normed(int d) const { return mean(d) * scale * of.p.groups.norm[d]; }

    TROUPE_DEVICE float element(int d) const {
      if (angles == nullptr)
        return normed(d);
      const int half = of.p.keys.head_dim / 2, i = d % half;
      const float a = normed(i), b = normed(half + i), cosine = angles[i], sine = angles[half + i];
      return d < half ? simt::fused(a, cosine, -simt::mul(b, sine)) : simt::fused(b, cosine, simt::mul(a, sine));
    }
  };
};

/// A block finds the key of the last of the best by digits, the highest first, then lists what is above it and, of its
/// equals, the earliest.
struct choose_kernel {
  static constexpr const char* name = "choice of positions";
  static constexpr unsigned threads = 512;
  static constexpr int digit_bits = 11, bin_count = 1 << digit_bits, bins_of_thread = bin_count / int(threads);
  choice_params p;
  int first;

  struct shared_memory {
    std::uint32_t bins[bin_count];
    std::uint32_t warps[threads / warp_lanes];
    std::uint32_t found[2]; // the bin, and how many are above it
  };

  TROUPE_DEVICE static shared_memory& shared() { return *reinterpret_cast<shared_memory*>(simt::shared()); }

  TROUPE_DEVICE void operator()() const {
    const std::size_t row = first + simt::block_x(), choice = simt::block_y(), choices = p.choices();
    const int seen = p.places[row].position + 1, size = p.groups.size;
    if (!p.chooses(seen - 1))
      return;
    const int count = p.block > 1 ? ceil_div(seen, p.block) : p.keys_seen(seen - 1);
    const int best = size > 1 ? (p.most + 1) / size - 1 : p.most / p.block; // groups, blocks or keys
    const float* scores = p.scores + (simt::block_x() * choices + choice) * p.width;
    auto left = static_cast<std::uint32_t>(best);
    std::uint32_t prefix = 0, known = 0;
    for (int shift = 32 - digit_bits; known != ~0u; shift = shift < digit_bits ? 0 : shift - digit_bits) {
      prefix |= find_digit(scores, count, prefix, known, shift, left) << shift;
      known |= std::uint32_t(bin_count - 1) << shift;
    }
    std::int32_t* to = p.chosen + (row * choices + choice) * p.most;
    std::uint32_t above = 0, equal = 0; // in what has been passed
    for (int start = 0; start < count; start += static_cast<int>(threads)) {
      const int i = start + static_cast<int>(simt::thread());
      const std::uint32_t key = i < count ? key_of(scores, count, i) : 0;
      const bool is_above = i < count && key > prefix, is_equal = i < count && key == prefix;
      std::uint32_t all = 0;
      const std::uint32_t before = sum_before(is_above | std::uint32_t(is_equal) << 16, all);
      const std::uint32_t equal_before = equal + (before >> 16), place = above + (before & 0xffff);
      if (is_above || (is_equal && equal_before < left))
        list(to, place + (equal_before < left ? equal_before : left), i, seen);
      above += all & 0xffff;
      equal += all >> 16;
    }
    if (const int i = static_cast<int>(simt::thread()); i < seen % size) // behind the last whole group
      to[best * size + i] = seen - seen % size + i;
  }

  /// The digit of the one at rank `left` among those that begin with `prefix`; its rank among those of its digit, too.
  TROUPE_DEVICE std::uint32_t find_digit(const float* scores, int count, std::uint32_t prefix, std::uint32_t known,
                                         int shift, std::uint32_t& left) const {
    const int thread = static_cast<int>(simt::thread());
    for (int i = thread; i < bin_count; i += static_cast<int>(threads))
      shared().bins[i] = 0;
    simt::sync_block();
    for (int i = thread; i < count; i += static_cast<int>(threads))
      if (const std::uint32_t key = key_of(scores, count, i); (key & known) == prefix)
        simt::atomic_add(&shared().bins[key >> shift & (bin_count - 1)], 1u);
    simt::sync_block();
    const int highest = bin_count - 1 - thread * bins_of_thread;
    std::uint32_t mine = 0, all = 0;
    for (int i = 0; i < bins_of_thread; ++i)
      mine += shared().bins[highest - i];
    std::uint32_t before = sum_before(mine, all);
    if (before < left && left <= before + mine) {
      int bin = highest;
      while (before + shared().bins[bin] < left)
        before += shared().bins[bin--];
      shared().found[0] = static_cast<std::uint32_t>(bin);
      shared().found[1] = before;
    }
    simt::sync_block();
    left -= shared().found[1];
    return shared().found[0];
  }

  /// In the order of scores. NaN is lowest.
  TROUPE_DEVICE std::uint32_t key_of(const float* scores, int count, int i) const {
    if (i >= count - p.last)
      return order_of(simt::infinity());
    float score = scores[std::size_t(i) * p.block];
    for (int k = 1; k < p.block; ++k) // all of them are seen, as there is a last block
      score = simt::maximum(score, scores[std::size_t(i) * p.block + k]);
    return order_of(simt::add(score, 0)); // -0 is 0
  }

  TROUPE_DEVICE void list(std::int32_t* to, std::uint32_t place, int i, int seen) const {
    const int unit = p.block * p.groups.size, at = i * unit * p.rate + p.rate - 1;
    for (int k = 0; k < at_most(unit, seen - at); ++k)
      to[static_cast<int>(place) * unit + k] = at + k;
  }

  /// The sum of what the threads before this one have; `all`: of all threads.
  TROUPE_DEVICE static std::uint32_t sum_before(std::uint32_t mine, std::uint32_t& all) {
    std::uint32_t before = 0, sum = mine;
    for (int mask = 1; mask < static_cast<int>(warp_lanes); mask *= 2) {
      const std::uint32_t other = simt::shuffle_xor(sum, mask);
      if ((simt::lane() & static_cast<unsigned>(mask)) != 0)
        before += other;
      sum += other;
    }
    if (simt::lane() == 0)
      shared().warps[simt::warp()] = sum;
    simt::sync_block();
    all = 0;
    for (unsigned w = 0; w < threads / warp_lanes; ++w) {
      if (w < simt::warp())
        before += shared().warps[w];
      all += shared().warps[w];
    }
    simt::sync_block();
    return before;
  }
};

template <kv_type Type, bool Grouped>
void start_scores(const stream& on, const choice_params& params, std::size_t first, std::size_t rows) {
  using kernel = score_kernel<Type, Grouped>;
  const auto blocks = ceil_div<std::size_t>(params.width, kernel::threads);
  launch(on, {static_cast<unsigned>(rows), static_cast<unsigned>(blocks)},
         static_cast<std::size_t>(kernel::heads_at_once * params.keys.head_dim) * sizeof(float),
         kernel{params, static_cast<int>(first)});
}

template <kv_type Type>
void start_scores(const stream& on, const choice_params& params, std::size_t first, std::size_t rows) {
  params.groups.size > 1 ? start_scores<Type, true>(on, params, first, rows)
                         : start_scores<Type, false>(on, params, first, rows);
}

} // namespace

void score_positions(const stream& on, const choice_params& params, std::size_t first, std::size_t rows) {
  switch (params.keys.type) {
    case kv_type::f32: return start_scores<kv_type::f32>(on, params, first, rows);
    case kv_type::bf16: return start_scores<kv_type::bf16>(on, params, first, rows);
    case kv_type::int8: return start_scores<kv_type::int8>(on, params, first, rows);
    case kv_type::fp8: return start_scores<kv_type::fp8>(on, params, first, rows);
  }
}

void choose_best(const stream& on, const choice_params& params, std::size_t first, std::size_t rows) {
  launch(on, {static_cast<unsigned>(rows), static_cast<unsigned>(params.choices())},
         sizeof(choose_kernel::shared_memory), choose_kernel{params, static_cast<int>(first)});
}

} // namespace troupe::kernels::cuda
