// Rotary position embeddings: from a model's parameters to the table of cosines and sines that the kernels read.
// Pure functions, used when a decoder is made. They compute what transformers' `modeling_rope_utils.py` computes.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace troupe {

enum class rope_type : std::uint8_t { plain, linear, dynamic, yarn, llama3 };

struct rope_config {
  rope_type type = rope_type::plain;
  double theta = 10000;
  double factor = 1;                // growth of the context; all types but plain
  double original_context = 0;      // tokens before scaling; dynamic, yarn, llama3
  double attention_factor = 1;      // multiplies cosines and sines; yarn
  double beta_fast = 32;            // yarn: rotations within the original context above which nothing is interpolated,
  double beta_slow = 1;             // and below which everything is
  bool truncate = true;             // yarn: round the range between the two outwards to whole dimensions
  double low_freq_factor = 1;       // llama3: original_context / factor are the wavelengths between which
  double high_freq_factor = 4;      // interpolation fades out
  std::vector<float> divisors = {}; // of the frequencies, [head_dim / 2], applied last; or empty

  bool operator==(const rope_config&) const = default;
};

/// YaRN's attention factor if the configuration has none (§3.4 of https://arxiv.org/abs/2309.00071, with
/// DeepSeek's two optional scales).
double yarn_attention_factor(double factor, std::optional<double> mscale, std::optional<double> mscale_all_dim);

/// Inverse frequencies [head_dim / 2] for a sequence of `length` tokens; only `dynamic` depends on the length.
/// In float32, as transformers computes them.
std::vector<float> inverse_frequencies(const rope_config& config, int head_dim, int length);

/// For each position 0 to positions - 1: head_dim / 2 cosines, then as many sines; [positions, head_dim].
///
/// Dynamic NTK changes the frequencies while a sequence grows, so in transformers a token's rotation depends on how
/// many tokens are computed together. Here position p always takes the frequencies of length p + 1 (at least the
/// original context), which is transformers' result for tokens that come one at a time, and independent of the
/// schedule.
std::vector<float> rope_table(const rope_config& config, int head_dim, int positions);

} // namespace troupe
