// Part of model_config. Describes tables of n-grams: layers that look up rows by hashes of the last tokens, and add what
// a row agrees with to its residual streams, with a short convolution of it whose taps are apart (Qwen 4's preview).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe {

/// How the n-grams of a layer become rows of its table. Of n tokens, the hash is the xor of each one times its
/// multiplier; a head's row is the remainder by its number of rows, behind those of the heads before it.
struct gram_hashes {
  std::vector<std::int64_t> multipliers; // [size]: of a row's token, then of those before it; none: no n-grams
  std::vector<std::int64_t> rows;        // [orders * heads], the shorter n-grams first

  bool operator==(const gram_hashes&) const = default;
};

struct gram_config {
  int size = 0;              // tokens of the longest n-grams; the shortest have 2. 0: there are none
  int heads = 0;             // rows that are looked up for the n-grams of a length
  int dim = 0;               // of a row
  int taps = 0;              // of the convolution; they are `size` rows apart
  int stop = 0;              // the token that is in place of those before a text, and before a row's last such token
  int parts = 1;             // tensors of about as many rows in which a table is stored
  std::int64_t multiple = 1; // tables have a multiple of this many rows
  std::vector<gram_hashes> layers; // [layers]

  explicit operator bool() const { return size > 0; }
  bool operator==(const gram_config&) const = default;

  bool at(int layer) const { return size > 0 && !layers[static_cast<std::size_t>(layer)].multipliers.empty(); }
  bool any(int first, int end) const {
    while (first < end && !at(first))
      ++first;
    return first < end;
  }
  int lookups() const { return (size - 1) * heads; } // of a row
  int width() const { return lookups() * dim; }      // of all that is looked up

  std::int64_t table_rows(int layer) const {
    std::int64_t all = 0;
    for (const auto rows : layers[static_cast<std::size_t>(layer)].rows)
      all += rows;
    return (all + multiple - 1) / multiple * multiple;
  }
  /// The rows of each part of a table but the last, which may have fewer.
  std::int64_t part_rows(int layer) const { return (table_rows(layer) + parts - 1) / parts; }
};

} // namespace troupe
