// Rotary position embeddings: from a model's parameters to the table of cosines and sines that the kernels read.
// Pure functions, used when a decoder is made. They compute what transformers' `modeling_rope_utils.py` computes.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace troupe {

enum class rope_type : std::uint8_t { plain, linear, dynamic, yarn, llama3, longrope, proportional };

struct rope_config {
  rope_type type = rope_type::plain;
  double theta = 10000;
  double factor = 1;                // growth of the context; all types but plain
  double original_context = 0;      // tokens before scaling; dynamic, yarn, llama3, longrope
  double attention_factor = 1;      // multiplies cosines and sines; yarn, longrope
  double beta_fast = 32;            // yarn: rotations within the original context above which nothing is interpolated,
  double beta_slow = 1;             // and below which everything is
  double portion = 1;               // proportional: of the pairs of dimensions that are rotated, the fastest
  bool truncate = true;             // yarn: round the range between the two outwards to whole dimensions
  double low_freq_factor = 1;       // llama3: original_context / factor are the wavelengths between which
  double high_freq_factor = 4;      // interpolation fades out
  std::vector<float> divisors = {}; // of the frequencies, [dims / 2], applied last; or empty
  std::vector<float> short_divisors = {}, long_divisors = {}; // longrope: up to and beyond the original context
  int dims = 0;                                               // of a head that are rotated, the first; 0: all
  bool interleaved = false;                                   // checkpoints pair neighbours, not halves

  bool operator==(const rope_config&) const = default;
};

/// YaRN's attention factor if the configuration has none (§3.4 of https://arxiv.org/abs/2309.00071, with
/// DeepSeek's two optional scales).
double yarn_attention_factor(double factor, std::optional<double> mscale, std::optional<double> mscale_all_dim);

/// Inverse frequencies [dims / 2] for a sequence of `length` tokens; only `dynamic` and `longrope` depend on the
/// length. In float32, as transformers computes them.
std::vector<float> inverse_frequencies(const rope_config& config, int head_dim, int length);

/// The table of rotations: each position 0 to positions - 1 has head_dim / 2 cosines, then as many sines; [positions,
/// head_dim].
///
/// Heads that are rotated in part are rotated whole, with an angle of 0 for the other dimensions; `rotated_order` puts
/// the elements of a pair where the kernels expect them.
///
/// All positions of a sequence take the frequencies of its `length`, as in transformers: LongRoPE has short factors for
/// sequences up to the original context, and long ones for all positions of those that are longer, so that what was
/// cached is computed again where a sequence crosses this border (`rope_border`; the scheduler sees to it). Dynamic NTK
/// would change the frequencies with every token beyond the original context, where transformers mixes keys of many
/// lengths, depending on how many tokens are computed together. So models end there (families/config_reading.cpp).
std::vector<float> rope_table(const rope_config& config, int head_dim, int positions, int length = 1);

/// The most tokens of a sequence before all its positions take other frequencies; 0: there is no such border within
/// `context` tokens.
int rope_border(const rope_config& config, int context);

/// Slopes of ALiBi (https://arxiv.org/abs/2108.12409), [heads].
std::vector<float> alibi_slopes(int heads);

/// The element of the checkpoint for each element of a head as kernels see it (element i pairs with i + head_dim / 2).
/// Empty if they are the same.
std::vector<std::uint32_t> rotated_order(const rope_config& config, int head_dim);

} // namespace troupe
