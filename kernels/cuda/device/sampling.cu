#include "kernels/cuda/device/sampling.hpp"

#include "kernels/cuda/device/launch.hpp"
#include "kernels/cuda/device/sampling_arithmetic.hpp"

namespace troupe::kernels::cuda {

namespace {

constexpr unsigned block_threads = 1024;
constexpr unsigned block_warps = block_threads / warp_lanes;
constexpr int digit_bits = 11;
constexpr std::int32_t bin_count = 1 << digit_bits;
constexpr float largest_float = 3.4028234663852886e38f;

/// A block's shared memory.
struct sampling_shared {
  std::uint32_t low[bin_count], high[bin_count]; // halves of the bins' sums
  std::uint64_t warps[block_warps];
  std::uint64_t top[most_top_logprobs]; // order, then the complement of the id
  std::uint32_t top_count;
};

TROUPE_DEVICE sampling_shared& shared() { return *reinterpret_cast<sampling_shared*>(simt::shared()); }

TROUPE_DEVICE std::uint64_t sum_of_block(std::uint64_t value) { return simt::block_sum(value, shared().warps); }

// Shared memory adds 32 bits in one instruction; 64 bits would be a loop of compare-and-swap, in which the few bins
// that most logits fall into hold up whole warps.
TROUPE_DEVICE void add_to_bin(std::uint32_t bin, std::uint32_t amount) { simt::atomic_add(&shared().low[bin], amount); }
TROUPE_DEVICE void add_to_bin(std::uint32_t bin, std::uint64_t amount) {
  const auto low = static_cast<std::uint32_t>(amount);
  const bool carries = simt::atomic_add(&shared().low[bin], low) > ~low;
  if (const std::uint32_t high = static_cast<std::uint32_t>(amount >> 32) + carries; high != 0)
    simt::atomic_add(&shared().high[bin], high);
}
TROUPE_DEVICE std::uint64_t sum_of_bin(std::int32_t bin) {
  return std::uint64_t(shared().high[bin]) << 32 | shared().low[bin];
}

/// The index at which the running sum of amount(0), amount(1), ... first exceeds `mark`, which must be less than the
/// total. `mark` becomes the offset into that amount. Every warp sums a part of the range; the part in which the sum
/// exceeds the mark is the next range.
template <class Amount>
TROUPE_DEVICE std::int32_t find(std::int32_t count, const Amount& amount, std::uint64_t& mark) {
  std::int32_t begin = 0, end = count;
  while (end - begin > static_cast<std::int32_t>(warp_lanes)) {
    const std::int32_t piece = ceil_div(end - begin, static_cast<std::int32_t>(block_warps));
    const std::int32_t first = begin + static_cast<std::int32_t>(simt::warp()) * piece;
    std::uint64_t sum = 0;
    for (std::int32_t i = first + static_cast<std::int32_t>(simt::lane()); i < first + piece && i < end;
         i += warp_lanes)
      sum += amount(i);
    sum = simt::warp_sum(sum);
    if (simt::lane() == 0)
      shared().warps[simt::warp()] = sum;
    simt::sync_block();
    unsigned warp = 0;
    while (warp + 1 < block_warps && mark >= shared().warps[warp])
      mark -= shared().warps[warp++];
    begin += static_cast<std::int32_t>(warp) * piece;
    end = begin + piece < end ? begin + piece : end;
    simt::sync_block();
  }
  for (std::uint64_t next; begin + 1 < end && mark >= (next = amount(begin)); ++begin)
    mark -= next;
  return begin;
}

/// A row of logits, and the tokens that may be chosen.
struct candidate_row {
  const float* logits;
  std::int32_t vocab;
  float largest = 0;
  std::int32_t likeliest = 0;
  std::uint32_t least = 0;     // order of the lowest logit that may be chosen
  std::int32_t last_equal = 0; // the largest id that may be chosen with that logit
  float min_p = 0;

  TROUPE_DEVICE candidate_row(const float* logits, std::int32_t vocab)
    : logits(logits), vocab(vocab), last_equal(vocab) {
    std::uint64_t best = 0;
    for (std::int32_t i = static_cast<std::int32_t>(simt::thread()); i < vocab; i += block_threads) {
      const std::uint64_t mine = std::uint64_t(order_of(at(i))) << 32 | ~static_cast<std::uint32_t>(i);
      best = mine > best ? mine : best;
    }
    for (int mask = 16; mask > 0; mask /= 2) {
      const std::uint64_t other = simt::shuffle_xor(best, mask);
      best = other > best ? other : best;
    }
    best = simt::across_warps(best, shared().warps, [](std::uint64_t a, std::uint64_t b) { return a > b ? a : b; });
    likeliest = static_cast<std::int32_t>(~static_cast<std::uint32_t>(best));
    largest = vocab > 0 ? at(likeliest) : -simt::infinity();
  }

  /// Plus infinity counts as the largest float.
  TROUPE_DEVICE float at(std::int32_t id) const { return logits[id] > largest_float ? largest_float : logits[id]; }

  /// Whether any token can be chosen.
  TROUPE_DEVICE bool any() const { return largest > -simt::infinity(); }

  TROUPE_DEVICE bool keeps(std::int32_t id, float logit) const {
    const std::uint32_t order = order_of(logit);
    return (order > least || (order == least && id <= last_equal)) &&
      (min_p == 0 || exp_nonpositive(simt::sub(logit, largest)) >= min_p);
  }

  /// The weight of a candidate; 0 for other tokens.
  TROUPE_DEVICE std::uint64_t weight(std::int32_t id) const {
    const float logit = at(id);
    return keeps(id, logit) ? sampling_weight(logit, largest) : 0;
  }

  template <class Amount>
  TROUPE_DEVICE std::uint64_t total(const Amount& amount) const {
    std::uint64_t sum = 0;
    for (std::int32_t i = static_cast<std::int32_t>(simt::thread()); i < vocab; i += block_threads)
      sum += amount(i);
    return sum_of_block(sum);
  }

  /// The order of the logit at which the running sum of amounts, by descending logits, exceeds `mark`. `mark` becomes
  /// the offset into the amounts of equal logits. Amounts are 64 bits wide, or 32 if their sum is.
  template <class Amount>
  TROUPE_DEVICE std::uint32_t order_at(const Amount& amount, std::uint64_t& mark) const {
    std::uint32_t prefix = 0, known = 0;
    for (int shift = 32 - digit_bits; known != ~0u; shift = shift < digit_bits ? 0 : shift - digit_bits) {
      for (unsigned i = simt::thread(); i < bin_count; i += block_threads)
        shared().low[i] = shared().high[i] = 0;
      simt::sync_block();
      for (std::int32_t i = static_cast<std::int32_t>(simt::thread()); i < vocab; i += block_threads) {
        const std::uint32_t order = order_of(at(i));
        if ((order & known) != prefix)
          continue;
        if (const auto mine = amount(i); mine != 0)
          add_to_bin(order >> shift & (bin_count - 1), mine);
      }
      simt::sync_block();
      const std::int32_t from_top = find(
        bin_count, [](std::int32_t i) { return sum_of_bin(bin_count - 1 - i); }, mark);
      prefix |= static_cast<std::uint32_t>(bin_count - 1 - from_top) << shift;
      known = ~0u << shift;
      simt::sync_block();
    }
    return prefix;
  }

  TROUPE_DEVICE void keep_top_k(std::int32_t k) {
    if (k <= 0 || k >= vocab)
      return;
    std::uint64_t mark = static_cast<std::uint64_t>(k) - 1;
    least = order_at([](std::int32_t) { return std::uint32_t(1); }, mark);
  }

  TROUPE_DEVICE void keep_top_p(std::uint64_t p) {
    if (p >= 1ull << 32)
      return;
    const auto amount = [&](std::int32_t i) { return weight(i); };
    const std::uint64_t total = this->total(amount);
    // mark = max(1, ceil(total * p / 2^32)) - 1
    const std::uint64_t low = total * p, high = simt::multiply_high(total, p);
    const std::uint64_t rounded = (high << 32 | low >> 32) + ((low & 0xffffffffu) != 0);
    std::uint64_t mark = rounded == 0 ? 0 : rounded - 1;
    least = order_at(amount, mark);
    // Keeps the lowest ids of the tokens with this logit.
    const std::uint64_t each = sampling_weight(logit_of(least), largest);
    std::uint64_t nth = mark / each;
    last_equal = find(
      vocab, [&](std::int32_t i) { return std::uint64_t(order_of(at(i)) == least); }, nth);
  }

  TROUPE_DEVICE static float logit_of(std::uint32_t order) {
    return simt::bits_to_float(order & 0x80000000u ? order & 0x7fffffffu : ~order);
  }

  TROUPE_DEVICE std::int32_t sample(std::uint64_t bits) const {
    const auto amount = [&](std::int32_t i) { return weight(i); };
    std::uint64_t mark = simt::multiply_high(bits, total(amount));
    return find(vocab, amount, mark);
  }
};

struct sample_kernel {
  static constexpr const char* name = "sample";
  static constexpr unsigned threads = block_threads;
  sampling_params p;

  TROUPE_DEVICE void operator()() const {
    const sampling_row& row = p.rows[simt::block_x()];
    sampled_row& out = p.out[simt::block_x()];
    const float* raw = p.logits + static_cast<std::size_t>(row.logit_row) * p.stride;
    const std::int32_t pending = row.pending != 0 ? p.slot_tokens[row.slot] : -1;
    const std::int32_t token = choose(row, edit(row, raw, pending), p.vocab);
    if (simt::thread() == 0) {
      out.token = token;
      if (p.slot_tokens != nullptr)
        p.slot_tokens[row.slot] = token < 0 ? 0 : token;
      out.top_count = 0;
    }
    if (row.logprobs >= 0 && token >= 0)
      report(row, raw, token, out);
  }

  TROUPE_DEVICE static std::int32_t choose(const sampling_row& row, const float* logits, std::int32_t vocab) {
    candidate_row tokens(logits, vocab);
    if (!tokens.any())
      return -1;
    if (row.greedy)
      return tokens.likeliest;
    tokens.keep_top_k(row.top_k);
    tokens.keep_top_p(row.top_p);
    tokens.min_p = row.min_p > 0x1p-41f ? row.min_p : 0;
    return tokens.sample(philox_bits(row.seed, row.position, row.index));
  }

  /// The logits after all edits: the original row, or an edited copy. `pending`: a generated token that `counts` does
  /// not include yet, or -1.
  TROUPE_DEVICE const float* edit(const sampling_row& row, const float* raw, std::int32_t pending) const {
    const float scale = row.greedy ? 1 : row.inverse_temperature;
    const bool edits = row.bias_count + row.counted + row.masked_count > 0 || pending >= 0;
    if (!edits && scale == 1)
      return raw;
    float* x = p.edited + std::size_t(simt::block_x()) * static_cast<std::size_t>(p.vocab);
    const auto thread = static_cast<std::int32_t>(simt::thread());
    const auto for_each = [&](std::int32_t count, const auto& f) {
      for (std::int32_t i = thread; i < count; i += block_threads)
        f(i);
      simt::sync_block();
    };
    for_each(p.vocab, [&](std::int32_t i) { x[i] = edits ? raw[i] : simt::mul(raw[i], scale); });
    if (!edits)
      return x;
    for_each(row.bias_count, [&](std::int32_t i) { add_to(x[row.biases[i].id], row.biases[i].bias); });
    const std::int32_t counted = row.counted + (pending >= 0 && !lists(row, pending));
    const auto entry_of = [&](std::int32_t i) {
      token_count entry = i < row.counted ? row.counts[i] : token_count{pending, 0};
      entry.generated += entry.id == pending;
      return entry;
    };
    if (row.repetition_penalty != 1)
      for_each(counted, [&](std::int32_t i) {
        float& logit = x[entry_of(i).id];
        logit = logit < 0 ? simt::mul(logit, row.repetition_penalty) : simt::divide(logit, row.repetition_penalty);
      });
    for_each(row.masked_count, [&](std::int32_t i) { x[row.masked[i]] = -simt::infinity(); });
    if (row.presence_penalty != 0 || row.frequency_penalty != 0)
      for_each(counted, [&](std::int32_t i) {
        const token_count entry = entry_of(i);
        if (entry.generated > 0)
          add_to(
            x[entry.id],
            -simt::add(simt::mul(static_cast<float>(entry.generated), row.frequency_penalty), row.presence_penalty));
      });
    if (scale != 1)
      for_each(p.vocab, [&](std::int32_t i) { x[i] = simt::mul(x[i], scale); });
    return x;
  }

  TROUPE_DEVICE static bool lists(const sampling_row& row, std::int32_t id) {
    std::uint64_t found = 0;
    for (std::int32_t i = static_cast<std::int32_t>(simt::thread()); i < row.counted; i += block_threads)
      found += row.counts[i].id == id;
    return sum_of_block(found) > 0;
  }

  TROUPE_DEVICE static void add_to(float& x, float y) { x = simt::add(x, y); }

  /// Stores what the log-probabilities of the token and of the likeliest tokens need.
  TROUPE_DEVICE void report(const sampling_row& row, const float* raw, std::int32_t token, sampled_row& out) const {
    candidate_row tokens(raw, p.vocab);
    const std::uint64_t total = tokens.total([&](std::int32_t i) { return tokens.weight(i); });
    const std::int32_t wanted = row.logprobs < p.vocab ? row.logprobs : p.vocab;
    if (simt::thread() == 0) {
      out.largest = tokens.largest;
      out.logit = raw[token];
      out.total = total;
      shared().top_count = 0;
    }
    simt::sync_block();
    if (wanted == 0)
      return;
    std::uint64_t mark = static_cast<std::uint64_t>(wanted) - 1;
    const std::uint32_t least = tokens.order_at([](std::int32_t) { return std::uint32_t(1); }, mark);
    const std::int32_t last = find(
      p.vocab, [&](std::int32_t i) { return std::uint64_t(order_of(tokens.at(i)) == least); }, mark);
    for (std::int32_t i = static_cast<std::int32_t>(simt::thread()); i < p.vocab; i += block_threads) {
      const std::uint32_t order = order_of(tokens.at(i));
      if (order > least || (order == least && i <= last))
        shared().top[simt::atomic_add(&shared().top_count, 1u)] = std::uint64_t(order) << 32 |
          ~static_cast<std::uint32_t>(i);
    }
    simt::sync_block();
    if (simt::thread() != 0)
      return;
    out.top_count = wanted;
    for (std::int32_t i = 0; i < wanted; ++i) { // selection sort
      std::int32_t best = 0;
      for (std::int32_t k = 1; k < wanted; ++k)
        best = shared().top[k] > shared().top[best] ? k : best;
      out.top_ids[i] = static_cast<std::int32_t>(~static_cast<std::uint32_t>(shared().top[best]));
      out.top_logits[i] = tokens.at(out.top_ids[i]);
      shared().top[best] = 0;
    }
  }
};

} // namespace

void sample(const stream& on, const sampling_params& params, std::size_t count) {
  launch(on, {static_cast<unsigned>(count)}, sizeof(sampling_shared), sample_kernel{params});
}

} // namespace troupe::kernels::cuda
