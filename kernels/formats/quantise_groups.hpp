// Quantises f32 weights: groups of 32 to int8 or int4, whole rows to fp8. Deterministic; any thread.
#pragma once

#include "kernels/formats/weight_groups.hpp"

namespace troupe::kernels {

/// 32 weights as q8_0 stores them: the scale is the largest magnitude / 127, rounded to f16.
weight_group quantise_int8(const float* weights);

/// 32 weights with 4-bit codes and a minimum. For each of several scales around the one that spans the range, codes and
/// a least-squares fit of scale and minimum alternate. The fit with the least squared error after rounding scale and
/// minimum to f16 is kept.
weight_group quantise_int4(const float* weights);

/// Quantises each of `groups` groups, [groups][32], with the bits of `quantise_int4` for one, and faster.
void quantise_int4(const float* weights, std::size_t groups, weight_group* to);

/// The scale that maps the largest magnitude of an output's weights to the largest of E4M3; 0 if all are 0, NaN if one
/// is not finite.
float fp8_scale(const float* weights, std::size_t count);

/// The code of a weight under a scale that fp8_scale gave.
std::uint8_t to_fp8(float weight, float scale);

} // namespace troupe::kernels
