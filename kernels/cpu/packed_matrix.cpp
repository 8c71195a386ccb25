#include "kernels/cpu/packed_matrix.hpp"

#include "kernels/cpu/panel_packing.hpp"
#include "kernels/formats/pruned_weights.hpp"
#include "kernels/formats/quantise_groups.hpp"

#include <algorithm>
#include <cstring>

namespace troupe::kernels {

namespace {

/// Whether no number has an exponent of all ones.
template <class Bits, Bits Exponent>
bool all_finite(const char* from, std::size_t bytes) {
  std::uint32_t found = 0;
  for (std::size_t i = 0; i < bytes; i += sizeof(Bits)) {
    Bits bits;
    std::memcpy(&bits, from + i, sizeof bits);
    found |= (bits & Exponent) == Exponent;
  }
  return found == 0;
}

bool all_finite(weight_kind kind, const char* from, std::size_t bytes) {
  switch (kind) {
    case weight_kind::f32: return all_finite<std::uint32_t, 0x7f800000>(from, bytes);
    case weight_kind::f16: return all_finite<std::uint16_t, 0x7c00>(from, bytes);
    case weight_kind::bf16:
    case weight_kind::bf16_pairs:
    case weight_kind::bf16_halves: return all_finite<std::uint16_t, 0x7f80>(from, bytes);
    default: return false;
  }
}

/// Whether the scales of parts of K are finite. One of all of K may be anything: it multiplies the whole sum.
bool scales_finite(const packed_matrix& m, const char* panel) {
  const std::size_t word_bytes = panel_outputs * (in_pairs(m.kind) ? 2 : 1);
  for (std::size_t word = 0; m.scale_words < m.words && word < m.words; word += m.scale_words)
    if (!all_finite<std::uint32_t, 0x7f800000>(
          panel + fp8_scales_offset(m.scale_words, word_bytes, word / m.scale_words), fp8_scale_bytes))
      return false;
  return true;
}

std::size_t words_of(weight_kind kind, std::size_t inputs) {
  const std::size_t in_word = is_grouped(kind) ? group_inputs : in_pairs(kind) ? 2 : 1;
  return (inputs + in_word - 1) / in_word;
}

/// The inputs that share a scale in fp8, all of a matrix if some have no others.
std::size_t shared_inputs(const stored_matrix& m) {
  return has_scale_blocks(m.format) ? traits_of(m.format).scale_inputs : m.cols;
}

bool in_f16(const stored_matrix& m) { return whole_format(m.format) == weight_format::f16; }

/// f16 weights are rounded to bf16, which loses bits, only where that is asked for.
weight_kind float_kind(std::span<const stored_matrix> stacked, dtype compute, quantization how, const target& kernels) {
  const bool rounded = how == quantization::bf16;
  if (rounded && compute == dtype::f32)
    return weight_kind::bf16;
  if (compute == dtype::bf16 && (rounded || std::none_of(stacked.begin(), stacked.end(), in_f16)))
    return kernels.pairs ? weight_kind::bf16_pairs : weight_kind::bf16;
  const auto format = whole_format(stacked.front().format);
  const bool same = std::all_of(stacked.begin(), stacked.end(),
                                [&](const auto& m) { return whole_format(m.format) == format; });
  return same && is_float(format) ? exact_kind(dtype_of(format)) : weight_kind::f32;
}

/// Cuts a stack into neighbours that are packed as one.
std::vector<std::span<const stored_matrix>> neighbours_of_a_kind(std::span<const stored_matrix> stacked,
                                                                 quantization how, bool gated) {
  if (stacked.empty())
    throw std::invalid_argument("no matrix to pack");
  if (gated)
    return {stacked};
  const auto alike = [&](const stored_matrix& a, const stored_matrix& b) {
    const auto kind = quantised_kind(a, how);
    return kind == quantised_kind(b, how) && is_pruned(a.format) == is_pruned(b.format) &&
      (kind != weight_kind::fp8 || shared_inputs(a) == shared_inputs(b)) &&
      (kind || how == quantization::bf16 || in_f16(a) == in_f16(b));
  };
  std::vector<std::span<const stored_matrix>> parts;
  for (std::size_t first = 0, i = 0; i < stacked.size(); ++i) {
    if (stacked[i].cols != stacked[0].cols)
      throw std::invalid_argument("matrices that are packed together must have the same inputs");
    if (i + 1 < stacked.size() && alike(stacked[i + 1], stacked[first]))
      continue;
    parts.push_back(stacked.subspan(first, i + 1 - first));
    first = i + 1;
  }
  return parts;
}

/// Calls `make` for a packed_matrix of each part.
template <class Make>
std::unique_ptr<matrix> make_stack(std::span<const stored_matrix> stacked, quantization how, bool gated,
                                   const Make& make) {
  const auto parts = neighbours_of_a_kind(stacked, how, gated);
  if (parts.size() == 1)
    return make(parts.front());
  auto stack = std::make_unique<matrix_stack>();
  stack->inputs = stacked.front().cols;
  for (const auto& same : parts) {
    const auto& part = stack->parts.emplace_back(make(same));
    stack->outputs += part->outputs;
    stack->bytes += part->bytes;
  }
  return stack;
}

} // namespace

bool packed_matrix::finite(thread_pool& pool) const {
  auto known = finiteness_.load(std::memory_order_relaxed);
  if (known == finiteness::unknown) {
    std::atomic<bool> all = true;
    pool.parallel_for(panels, [&](std::size_t panel, int) {
      const auto* from = static_cast<const char*>(data.get()) + panel * panel_bytes(*this);
      if (!(is_fp8(kind) ? scales_finite(*this, from) : all_finite(kind, from, panel_bytes(*this))))
        all = false;
    });
    known = all ? finiteness::finite : finiteness::not_finite;
    finiteness_.store(known, std::memory_order_relaxed);
  }
  return known == finiteness::finite;
}

std::optional<weight_kind> quantised_kind(const stored_matrix& m, quantization how) {
  const auto stored = traits_of(m.format).on_cpu;
  if (is_grouped(stored))
    return stored;
  if (is_pruned(m.format)) // stays as it is
    return {};
  switch (how) {
    case quantization::int8: return weight_kind::q8;
    case quantization::int4: return weight_kind::q4_min;
    case quantization::fp8: return weight_kind::fp8;
    case quantization::bf16:
    case quantization::none: break;
  }
  return is_fp8(stored) ? std::optional(stored) : std::nullopt;
}

std::unique_ptr<packed_matrix> shape_matrices(std::span<const stored_matrix> stacked, dtype compute, quantization how,
                                              bool gated, const target& kernels) {
  if (stacked.empty())
    throw std::invalid_argument("no matrix to pack");
  if (compute == dtype::f16)
    throw std::invalid_argument("matrices are packed for f32 or bf16, not for f16");
  auto to = std::make_unique<packed_matrix>();
  to->inputs = stacked.front().cols;
  for (const auto& m : stacked) {
    if (m.cols != to->inputs)
      throw std::invalid_argument("matrices that are packed together must have the same number of inputs");
    if (m.cols % block_inputs(m.format) != 0)
      throw std::invalid_argument(std::string("a matrix in ") + to_string(m.format) + " must have a multiple of " +
                                  std::to_string(block_inputs(m.format)) + " inputs");
    to->outputs += m.rows;
  }
  if (gated) {
    if (stacked.size() != 2 || stacked[0].rows != stacked[1].rows)
      throw std::invalid_argument("gate and up must have the same number of outputs");
    to->outputs = stacked[0].rows;
  }
  const auto kind = quantised_kind(stacked.front(), how);
  const bool same = std::all_of(stacked.begin(), stacked.end(),
                                [&](const auto& m) { return quantised_kind(m, how) == kind; });
  to->pruned = std::all_of(stacked.begin(), stacked.end(), [](const auto& m) { return is_pruned(m.format); });
  to->kind = same && kind ? *kind : float_kind(stacked, compute, to->pruned ? quantization::none : how, kernels);
  if (to->kind == weight_kind::fp8 && compute == dtype::bf16 && kernels.code_pairs)
    to->kind = weight_kind::fp8_pairs;
  if (to->kind == weight_kind::bf16 && !to->pruned && kernels.halves)
    to->kind = weight_kind::bf16_halves;
#if !defined(__x86_64__) // elsewhere pairs have another order, which pruned ones would not keep
  if (to->pruned && to->kind == weight_kind::bf16_pairs)
    to->kind = weight_kind::bf16;
#endif
  to->compute = compute;
  to->gated = gated;
  to->words = words_of(to->kind, to->inputs);
  if (is_fp8(to->kind)) {
    auto inputs = to->inputs;
    for (const auto& m : stacked)
      inputs = std::min(inputs, shared_inputs(m));
    to->scale_words = words_of(to->kind, inputs);
  }
  const std::size_t columns = to->panel_columns();
  const std::size_t outputs_per_panel = gated ? columns / 2 : columns;
  to->panels = (to->outputs + outputs_per_panel - 1) / outputs_per_panel;
  to->bytes = to->panels * panel_bytes(*to);
  return to;
}

std::unique_ptr<packed_matrix> pack_matrices(std::span<const stored_matrix> stacked, dtype compute, quantization how,
                                             bool gated, const target& kernels, thread_pool& pool,
                                             weight_memory& memory) {
  auto to = shape_matrices(stacked, compute, how, gated, kernels);
  to->data = memory.allocate(to->bytes);
  fill_panels(*to, stacked, kernels, pool);
  return to;
}

std::unique_ptr<matrix> pack_stack(std::span<const stored_matrix> stacked, dtype compute, quantization how, bool gated,
                                   const target& kernels, thread_pool& pool, weight_memory& memory) {
  return make_stack(stacked, how, gated,
                    [&](const auto& same) { return pack_matrices(same, compute, how, gated, kernels, pool, memory); });
}

std::unique_ptr<matrix> shape_stack(std::span<const stored_matrix> stacked, dtype compute, quantization how, bool gated,
                                    const target& kernels) {
  return make_stack(stacked, how, gated,
                    [&](const auto& same) { return shape_matrices(same, compute, how, gated, kernels); });
}

std::vector<const packed_matrix*> parts_of(const matrix& packed) {
  if (const auto* one = dynamic_cast<const packed_matrix*>(&packed))
    return {one};
  const auto* stack = dynamic_cast<const matrix_stack*>(&packed);
  if (stack == nullptr)
    throw std::invalid_argument("the matrix is not packed by the CPU backend");
  std::vector<const packed_matrix*> parts;
  for (const auto& part : stack->parts)
    parts.push_back(part.get());
  return parts;
}

std::vector<std::span<const std::byte>> bytes_of_stack(const matrix& packed) {
  std::vector<std::span<const std::byte>> bytes;
  for (const auto* part : parts_of(packed))
    bytes.emplace_back(static_cast<const std::byte*>(part->data.get()), part->bytes);
  return bytes;
}

std::unique_ptr<matrix> restore_stack(std::span<const stored_matrix> stacked, dtype compute, quantization how,
                                      bool gated, const target& kernels, const buffer& bytes) {
  std::size_t done = 0;
  return make_stack(stacked, how, gated, [&](const auto& same) {
    auto part = shape_matrices(same, compute, how, gated, kernels);
    part->data = buffer(bytes, static_cast<std::byte*>(bytes.get()) + done);
    done += part->bytes;
    return part;
  });
}

} // namespace troupe::kernels
