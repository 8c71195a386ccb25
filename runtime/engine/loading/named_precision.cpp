#include "runtime/engine/loading/named_precision.hpp"

#include "runtime/support/error.hpp"

#include <charconv>

namespace troupe {

namespace {

constexpr float most_sparsity = 0.99f;

} // namespace

mlp_sparsity parse_sparsity(std::string_view text) {
  const auto colon = text.find(':');
  const auto share = [&](std::string_view part) {
    float value = -1;
    const auto [end, failed] = std::from_chars(part.data(), part.data() + part.size(), value);
    if (failed != std::errc() || end != part.data() + part.size() || !(value >= 0 && value <= most_sparsity))
      refuse_field("sparsity",
                   "must be a share from 0 to 0.99 of the inputs of down projections, or two, as 0.9:0.3, "
                   "the second of those of gate and up, not `" +
                     std::string(text) + "`");
    return value;
  };
  mlp_sparsity result{share(text.substr(0, colon))};
  if (colon != text.npos)
    result.up = share(text.substr(colon + 1));
  return result;
}

precision precision_of(const compute_options& names, const checkpoint& tensors, const device_capabilities& device) {
  using kernels::kv_type;
  using kernels::quantization;
  const auto refuse = [](const char* field, const char* known, const std::string& found) {
    return failure(errc::bad_request, "`" + std::string(field) + "` must be " + known + ", not `" + found + "`", field);
  };
  const auto weights = names.quantize == "none" ? quantization::none
    : names.quantize == "int8"                  ? quantization::int8
    : names.quantize == "int4"                  ? quantization::int4
    : names.quantize == "fp8"                   ? quantization::fp8
    : names.quantize == "bf16"                  ? quantization::bf16
                               : throw refuse("quantize", "none, int8, int4, fp8 or bf16", names.quantize);
  const auto compute = names.dtype == "auto" ? natural_compute(tensors, weights, device.f16_as_bf16)
    : names.dtype == "f32"                   ? kernels::dtype::f32
    : names.dtype == "bf16"                  ? kernels::dtype::bf16
                                             : throw refuse("dtype", "auto, f32 or bf16", names.dtype);
  precision result{compute, weights};
  result.sparsity = parse_sparsity(names.sparsity);
  if (!(names.attention_threshold >= 0 && names.attention_threshold < 1))
    refuse_field("attention_threshold", "must be from 0 to below 1");
  result.attention_threshold = names.attention_threshold;
  if (names.kv_dtype == "auto")
    return result;
  for (const auto kv : {kv_type::f32, kv_type::bf16, kv_type::int8, kv_type::fp8})
    if (names.kv_dtype == kernels::to_string(kv)) {
      result.kv = kv;
      return result;
    }
  throw refuse("kv_dtype", "auto, f32, bf16, int8 or fp8", names.kv_dtype);
}

} // namespace troupe
