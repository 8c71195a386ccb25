// Which steps lead from edited logits to the candidates of a draw, and in which order. A plain value.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// In the default order: that of transformers' warpers, with what they lack at the place that text-generation-webui
/// gives it.
enum class sampler_step : std::uint8_t {
  temperature, // or dynamic temperature
  smoothing,
  top_n_sigma,
  top_k,
  top_p,
  min_p,
  typical_p,
  epsilon_cutoff,
  eta_cutoff,
  top_a,
  xtc,
};
inline constexpr std::size_t sampler_steps = 11;

/// Their names, as clients write them.
inline constexpr std::array<std::string_view, sampler_steps> sampler_names{
  "temperature", "smoothing",      "top_n_sigma", "top_k", "top_p", "min_p",
  "typical_p",   "epsilon_cutoff", "eta_cutoff",  "top_a", "xtc"};

class sampler_order {
public:
  /// The default.
  sampler_order();

  /// Steps that are not named do not run. "penalties" and "dry" (which edit logits) may be named ahead of all others,
  /// where they run anyway; "typ_p" is llama.cpp's name of typical_p. Throws failure(bad_request, sentence, "samplers")
  /// for an unknown or repeated name.
  explicit sampler_order(std::span<const std::string> names);

  std::span<const sampler_step> steps() const { return {steps_.data(), count_}; }
  bool is_default() const { return *this == sampler_order(); }
  bool operator==(const sampler_order&) const = default;

private:
  std::array<sampler_step, sampler_steps> steps_{};
  std::uint8_t count_ = 0;
};

} // namespace troupe
