#include "kernels/cpu/sparse_words.hpp"

#include "kernels/cpu/tensor_rows.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace troupe::kernels {

namespace {

/// Words of K in a hundred that may be left for the rest to be worth skipping: what is left lies in pieces, which some
/// processors read at a quarter of the speed of whole matrices.
constexpr std::size_t most_kept_percent = 30;

/// Words after which a list that gets too long is given up.
constexpr std::size_t first_look = 512;

/// How the inputs of a product lie in words of K. `stored` is what memory has for a word.
struct f32_words {
  using stored = std::uint32_t;
  static constexpr stored magnitude_bits = 0x7fffffff;
  static constexpr std::uint32_t word(stored bits) { return bits; }
  static constexpr std::uint16_t magnitude(stored bits) { return static_cast<std::uint16_t>(bits >> 16 & 0x7fff); }
};

struct bf16_words {
  using stored = std::uint16_t;
  static constexpr stored magnitude_bits = 0x7fff;
  static constexpr std::uint32_t word(stored bits) { return std::uint32_t{bits} << 16; } // widened to f32
  static constexpr std::uint16_t magnitude(stored bits) { return bits & 0x7fff; }
};

struct pair_words {
  using stored = std::uint32_t;
  static constexpr stored magnitude_bits = 0x7fff7fff;
  static constexpr std::uint32_t word(stored bits) { return bits; }
  static constexpr std::uint16_t magnitude(stored bits) {
    const auto low = static_cast<std::uint16_t>(bits & 0x7fff), high = static_cast<std::uint16_t>(bits >> 16 & 0x7fff);
    return low > high ? low : high;
  }
};

/// Calls f with the words of inputs of `type` for weights of `kind`.
template <class F>
auto with_words(dtype type, weight_kind kind, const F& f) {
  if (type == dtype::f32)
    return f(f32_words());
  return in_pairs(kind) ? f(pair_words()) : f(bf16_words());
}

template <class Words>
typename Words::stored load_word(const char* row, std::size_t k) {
  typename Words::stored bits;
  std::memcpy(&bits, row + k * sizeof bits, sizeof bits);
  return bits;
}

/// A row's inputs. The last pair may lack its second one, which counts as zero.
template <class Words>
struct word_row {
  const char* data;
  std::size_t whole; // words
  std::uint32_t last = 0;

  word_row(const tensor& in, std::size_t row)
    : data(static_cast<const char*>(row_of(in, row))),
      whole(in.cols * size_of(in.type) / sizeof(typename Words::stored)) {
    if (whole * sizeof(typename Words::stored) < in.cols * size_of(in.type))
      last = load_word<bf16_words>(data, in.cols - 1);
  }

  typename Words::stored operator[](std::size_t k) const {
    return k < whole ? load_word<Words>(data, k) : static_cast<typename Words::stored>(last);
  }
};

/// Whether enough of a row's words are zero for a closer look. One pass, which costs nothing beside its weights.
template <class Words>
bool looks_sparse(const word_row<Words>& row, std::size_t words) {
  std::uint32_t zeros = 0;
  for (std::size_t k = 0; k < row.whole; ++k)
    zeros += (load_word<Words>(row.data, k) & Words::magnitude_bits) == 0;
  return zeros * std::size_t(100) > words * (100 - most_kept_percent);
}

/// Ors the bits of all rows' words from `first` to `end` into `any`.
template <class Words>
void gather_bits(const tensor& in, std::size_t first, std::size_t end, std::uint32_t* any) {
  std::fill(any + first, any + end, 0);
  for (std::size_t r = 0; r < in.rows; ++r) {
    const word_row<Words> row(in, r);
    for (std::size_t k = first; k < std::min(end, row.whole); ++k)
      any[k] |= load_word<Words>(row.data, k);
    if (row.whole < end)
      any[row.whole] |= row.last;
  }
}

/// Whether these words would make a list that is too long.
template <class Words>
bool too_many(const std::uint32_t* any, std::size_t words, std::size_t percent) {
  std::size_t needed = 0;
  for (std::size_t k = 0; k < words; ++k)
    needed += (any[k] & Words::magnitude_bits) != 0;
  return needed * 100 > words * percent;
}

/// Makes a list of places of a row of bits, in its memory. Returns the places with padding, and counts those without.
template <class Words>
std::size_t list_places(std::uint32_t* any, std::size_t words, std::size_t group, std::size_t& needed) {
  std::size_t count = 0;
  const std::size_t step = group == 1 ? words : group; // without padding, one group is as good as many
  for (std::size_t first = 0; first < words; first += step) {
    const std::size_t begin = count;
    for (std::size_t k = first; k < std::min(words, first + step); ++k) {
      const bool keep = (any[k] & Words::magnitude_bits) != 0;
      any[count] = static_cast<std::uint32_t>(k);
      count += keep;
    }
    needed += count - begin;
    if (count > begin)
      for (; count < begin + group; ++count)
        any[count] = any[count - 1];
  }
  return count;
}

/// The nth smallest of some magnitudes, which are below 2^15; nth counts from 0. Reorders them.
std::uint16_t nth_smallest(std::uint16_t* magnitudes, std::size_t n, std::size_t nth) {
  std::array<std::array<std::uint32_t, 256>, 4> counts{}; // of neighbours, which are often equal
  for (std::size_t i = 0; i < n; ++i)
    ++counts[i % 4][magnitudes[i] >> 7];
  std::uint16_t exponent = 0;
  for (;; ++exponent) {
    const std::size_t here = counts[0][exponent] + counts[1][exponent] + counts[2][exponent] + counts[3][exponent];
    if (nth < here)
      break;
    nth -= here;
  }
  std::size_t same = 0;
  for (std::size_t i = 0; i < n; ++i) {
    magnitudes[same] = magnitudes[i];
    same += magnitudes[i] >> 7 == exponent;
  }
  std::nth_element(magnitudes, magnitudes + nth, magnitudes + same);
  return magnitudes[nth];
}

/// Makes zeros of the words below the nth smallest magnitude. `magnitudes`: room for all words.
template <class Words>
void drop_below(char* data, const word_row<Words>& row, std::size_t words, std::size_t nth, std::uint16_t* magnitudes) {
  for (std::size_t k = 0; k < row.whole; ++k)
    magnitudes[k] = Words::magnitude(load_word<Words>(data, k));
  if (row.whole < words)
    magnitudes[row.whole] = Words::magnitude(row[row.whole]);
  const auto least = nth_smallest(magnitudes, words, nth);
  for (std::size_t k = 0; k < row.whole; ++k) {
    auto bits = load_word<Words>(data, k);
    bits = Words::magnitude(bits) < least ? 0 : bits;
    std::memcpy(data + k * sizeof bits, &bits, sizeof bits);
  }
  if (row.whole < words && Words::magnitude(row[row.whole]) < least)
    std::memset(data + row.whole * sizeof(typename Words::stored), 0, sizeof(std::uint16_t));
}

} // namespace

kept_words sparse_words::find(const tensor& in, const packed_matrix& weights, std::size_t group) {
  return with_words(in.type, weights.kind, [&]<class Words>(Words) {
    kept_words found;
    const auto words = weights.words;
    if (!looks_sparse(word_row<Words>(in, 0), words))
      return found;
    auto* any = places_.reserve(ceil_div(words, group) * group);
    const auto look = std::min(first_look, words);
    gather_bits<Words>(in, 0, look, any);
    if (too_many<Words>(any, look, most_kept_percent + 10))
      return found;
    gather_bits<Words>(in, look, words, any);
    if (too_many<Words>(any, words, most_kept_percent) || !weights.finite(pool_))
      return found;
    found.count = list_places<Words>(any, words, group, found.needed);
    found.places = any;
    auto* to = activations_.reserve(std::max(in.rows * found.count, std::size_t(1)));
    found.activations = to;
    for (std::size_t r = 0; r < in.rows; ++r) {
      const word_row<Words> row(in, r);
      for (std::size_t i = 0; i < found.count; ++i) {
        const bool padding = i % group != 0 && any[i] == any[i - 1];
        *to++ = padding ? 0 : Words::word(row[any[i]]);
      }
    }
    return found;
  });
}

void sparse_words::drop_smallest(const tensor& x, float share, const packed_matrix& weights) {
  expect(share >= 0 && share < 1, "drop_smallest: the share must be at least 0 and less than 1");
  expect(x.type == weights.compute && x.cols == weights.inputs,
         "drop_smallest: x must be of the type and columns that the weights were packed for");
  const auto words = weights.words;
  const auto dropped = static_cast<std::size_t>(double(share) * double(words));
  if (dropped == 0)
    return;
  magnitudes_.resize(static_cast<std::size_t>(pool_.size()));
  for (auto& memory : magnitudes_)
    memory.reserve(words);
  pool_.parallel_for(x.rows, [&](std::size_t r, int thread) {
    with_words(x.type, weights.kind, [&]<class Words>(Words) {
      drop_below(static_cast<char*>(row_of(x, r)), word_row<Words>(x, r), words, dropped,
                 magnitudes_[static_cast<std::size_t>(thread)].reserve(0));
    });
  });
}

} // namespace troupe::kernels
