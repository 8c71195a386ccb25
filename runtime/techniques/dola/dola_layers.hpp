// Says which inner layers DoLa contrasts a request with (decoding by contrasting layers; Chuang et al. 2023,
// https://arxiv.org/abs/2309.03883): as the request says it, and as the layers of a model. Layer k is the residual
// stream behind k layers, as in Hugging Face's `hidden_states[k]`; 0 is the embedding. Immutable; any thread.
#pragma once

#include "runtime/sampling/sampling_lists.hpp"

#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <vector>

namespace troupe {

/// Layers that one request may be contrasted with: the words name at most 10.
inline constexpr std::size_t most_dola_layers = 16;

/// Nothing, a word, or layers: distinct, ascending.
class dola_layers : public shared_list<int> {
public:
  dola_layers() = default;

  /// "low" or "high", which a model turns into layers. Throws failure(bad_request).
  explicit dola_layers(std::string_view word);

  /// Throws failure(bad_request) if there are none or too many, or one is negative or repeated.
  explicit dola_layers(std::vector<int> layers);
  explicit dola_layers(std::initializer_list<int> layers) : dola_layers(std::vector(layers)) {}

  /// Whether a contrast is asked for.
  explicit operator bool() const { return asked_ != part::none; }

  /// "low" or "high"; empty: it has no word.
  std::string_view word() const { return asked_ == part::low ? "low" : asked_ == part::high ? "high" : ""; }

  /// The layers that it names in a model of `layers` layers, whose head is its embedding matrix if it is `tied`; the
  /// ranges are transformers'. Throws failure(bad_request) if it has no such layer.
  dola_layers of_model(int layers, bool tied) const;

private:
  enum class part : std::uint8_t { none, low, high, listed };

  part asked_ = part::none;
};

} // namespace troupe
