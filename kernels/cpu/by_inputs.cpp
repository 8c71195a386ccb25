#include "kernels/cpu/by_inputs.hpp"

#include "kernels/cpu/tensor_rows.hpp"
#include "kernels/formats/weight_groups.hpp"

#include <bit>
#include <cstring>

namespace troupe::kernels {

namespace {

/// Bytes of a word that are not zero, as bits.
std::uint32_t nonzero_bytes(std::uint32_t word) {
  std::uint32_t bits = 0;
  for (int i = 0; i < 4; ++i)
    bits |= (word >> 8 * i & 0xff) != 0 ? 1u << i : 0u;
  return bits;
}

bool finite(std::uint32_t bits) { return (bits & 0x7f800000) != 0x7f800000; }

/// A row's record of a group.
const std::uint32_t* record_of(const linear_op& op, std::size_t row, std::size_t group) {
  const std::size_t stride = op.tile_rows * activation_record;
  return op.activations + group / group_block * op.activation_block + row / op.tile_rows * group_block * stride +
    group % group_block * stride + row % op.tile_rows * activation_record;
}

} // namespace

bool kept_inputs::look(const linear_op& op, const quantised_layout& layout) {
  parts_ = layout.parts;
  masks_.assign(op.words, 0);
  std::size_t zero = 0, common = 0, read = 0;
  for (std::size_t group = 0; group < op.words; ++group) {
    std::uint32_t any = 0;
    for (std::size_t row = 0; row < op.rows; ++row) {
      const auto* record = record_of(op, row, group);
      if (!finite(record[8]))
        return false;
      std::uint32_t own = 0;
      for (std::size_t i = 0; i < group_inputs / 4; ++i)
        own |= nonzero_bytes(record[i]) << 4 * i;
      zero += group_inputs - static_cast<std::size_t>(std::popcount(own));
      any |= own;
    }
    masks_[group] = any;
    common += group_inputs - static_cast<std::size_t>(std::popcount(any));
    if (any != 0) // bytes of 32 outputs: codes of each input that is left, and the scales
      read += static_cast<std::size_t>(std::popcount(any)) * static_cast<std::size_t>(layout.code_bits) * 4 +
        layout.group_bytes - layout.code_bytes;
  }
  const auto inputs = static_cast<double>(op.words * group_inputs);
  zeros_ = {double(zero) / inputs / double(op.rows), double(common) / inputs};
  share_ = double(read) / (double(op.words) * double(layout.group_bytes));
  return true;
}

void kept_inputs::apply(linear_op& op) {
  groups_.clear();
  std::size_t quads = 0;
  for (std::size_t group = 0; group < masks_.size(); ++group) {
    if (masks_[group] == 0)
      continue;
    const auto lower = parts_ == 2 ? masks_[group] & 0xffff : masks_[group],
               upper = parts_ == 2 ? masks_[group] >> 16 : 0;
    kept_group kept;
    kept.group = static_cast<std::uint32_t>(group);
    kept.first = static_cast<std::uint32_t>(quads);
    quads += ceil_div(static_cast<std::size_t>(std::popcount(lower)), std::size_t(4));
    kept.middle = static_cast<std::uint32_t>(quads);
    quads += ceil_div(static_cast<std::size_t>(std::popcount(upper)), std::size_t(4));
    kept.end = static_cast<std::uint32_t>(quads);
    groups_.push_back(kept);
  }
  auto* places = places_.reserve(std::max<std::size_t>(quads, 1));
  const auto list = [](std::uint32_t* to, std::uint32_t mask, std::uint32_t first) {
    for (std::uint32_t last = 0; mask != 0; ++to) {
      std::uint32_t quad = 0;
      for (int i = 0; i < 4; ++i) {
        if (mask != 0) // the last one is repeated, with zeros as activations
          last = first + static_cast<std::uint32_t>(std::countr_zero(mask));
        quad |= (last | (mask != 0 ? 0u : 0x80u)) << 8 * i;
        mask &= mask - 1;
      }
      *to = quad;
    }
  };
  for (const auto& kept : groups_) {
    const auto mask = masks_[kept.group];
    list(places + kept.first, parts_ == 2 ? mask & 0xffff : mask, 0);
    list(places + kept.middle, parts_ == 2 ? mask >> 16 : 0, 16);
  }
  const std::size_t stride = groups_.size() * kept_record + quads;
  auto* activations = activations_.reserve(std::max<std::size_t>(op.rows * stride, 1));
  for (std::size_t row = 0; row < op.rows; ++row) {
    auto* record_to = activations + row * stride;
    auto* quad_to = record_to + groups_.size() * kept_record;
    for (const auto& kept : groups_) {
      const auto* record = record_of(op, row, kept.group);
      std::memcpy(record_to, record + 8, kept_record * sizeof *record_to);
      record_to += kept_record;
      const auto* codes = reinterpret_cast<const unsigned char*>(record);
      for (auto q = kept.first; q < kept.end; ++q) {
        std::uint32_t word = 0;
        for (int i = 0; i < 4; ++i) {
          const auto place = places[q] >> 8 * i & 0xff;
          word |= (place & 0x80) != 0 ? 0u : static_cast<std::uint32_t>(codes[place]) << 8 * i;
        }
        *quad_to++ = word;
      }
    }
  }
  for (std::size_t q = 0; q < quads; ++q)
    places[q] &= 0x1f1f1f1f;
  op.kept = places;
  op.kept_words = quads;
  op.kept_groups = groups_.data();
  op.kept_group_count = groups_.size();
  op.activations = activations;
  op.activation_block = stride;
}

} // namespace troupe::kernels
