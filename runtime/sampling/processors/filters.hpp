// Filters of candidates beyond top-k, top-p and min-p. Pure functions. Shares are those of the integer weights of
// sampler.hpp, logarithms are of doubles, sums run in a fixed order; so equal logits give equal choices.
// A token that weighs nothing (less than 2^-41 of the likeliest) may be dropped by any of them.
#pragma once

#include "runtime/sampling/candidates.hpp"

#include <cstdint>

namespace troupe {

/// Top-n-sigma (Tang et al. 2024): keeps the logits at most n standard deviations of all candidates' logits (of the
/// population) below the largest; all for n <= 0.
void keep_top_n_sigma(candidates& tokens, float n);

/// TypicalLogitsWarper: keeps the tokens whose surprise is closest to the entropy, until they make up `p`; ties at the
/// edge stay. May drop the likeliest. p >= 1 keeps all.
void keep_typical(candidates& tokens, float p);

/// EpsilonLogitsWarper: keeps tokens at least `epsilon` likely, and the likeliest.
void keep_epsilon(candidates& tokens, float epsilon);

/// EtaLogitsWarper: keeps tokens at least min(epsilon, sqrt(epsilon) * exp(-entropy)) likely, and the likeliest.
void keep_eta(candidates& tokens, float epsilon);

/// Top-a: keeps tokens at least a * (probability of the likeliest)^2 likely, and the likeliest.
void keep_top_a(candidates& tokens, float a);

/// Exclude top choices: of the tokens at least `threshold` likely, if there are several, only the least likely stays
/// (of equals the highest id). Less likely ones stay. Happens where `bits` / 2^64 is below `probability`.
void exclude_top_choices(candidates& tokens, float threshold, float probability, std::uint64_t bits);

/// Dynamic temperature, as llama.cpp: divides logits by low + (high - low) * (entropy / log(candidates)) ^ exponent,
/// where low and high are `range` below and above `temperature`; at least 0.01.
void apply_dynamic_temperature(candidates& tokens, float temperature, float range, float exponent);

/// Quadratic smoothing: logit = max - k * factor * d^2 + s * factor * d^3, d = logit - max, k = (3 - curve) / 2,
/// s = (curve - 1) / 2. `curve` is between 1 and 3.
void smooth(candidates& tokens, float factor, float curve);

/// Mirostat 2 (Basu et al. 2021): draws among tokens of a surprise of at most `mu` bits, the likeliest in any case, and
/// moves `mu` by eta * (tau - the surprise of what was drawn).
struct mirostat_draw {
  token_id id = 0;
  float mu = 0;
};
mirostat_draw draw_mirostat(candidates& tokens, float mu, float tau, float eta, std::uint64_t bits);

} // namespace troupe
