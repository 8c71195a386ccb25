#include "runtime/import/export/fp8_export.hpp"

#include "kernels/formats/e4m3.hpp"
#include "kernels/formats/quantise_groups.hpp"
#include "runtime/checkpoint/safetensors_writer.hpp"
#include "runtime/checkpoint/weight_values.hpp"
#include "runtime/import/export/folder_export.hpp"
#include "runtime/model/tensor_names.hpp"

#include <algorithm>
#include <cmath>

namespace troupe {

namespace {

/// Activations are quantised where they are multiplied, if at all.
constexpr const char* fp8_quantization = R"({
    "config_groups": {
      "group_0": {
        "input_activations": {"dynamic": true, "num_bits": 8, "strategy": "token", "symmetric": true, "type": "float"},
        "targets": ["Linear"],
        "weights": {"dynamic": false, "num_bits": 8, "strategy": "channel", "symmetric": true, "type": "float"}
      }
    },
    "format": "float-quantized",
    "ignore": ["lm_head"],
    "quant_method": "compressed-tensors",
    "quantization_status": "compressed"
  })";

struct fp8_rows {
  std::vector<std::uint8_t> codes; // [outputs, inputs]
  std::vector<float> scales;       // [outputs]
  double squares = 0, errors = 0;
};

fp8_rows quantise_fp8(const checkpoint& tensors, const std::string& name, kernels::thread_pool& pool) {
  const auto& info = *tensors.find(name);
  const auto format = *weight_format_of(info.type);
  const auto data = tensors.read(name);
  const auto rows = info.shape[0], cols = info.shape[1];
  fp8_rows to{std::vector<std::uint8_t>(rows * cols), std::vector<float>(rows)};
  std::vector<double> squares(rows), errors(rows);
  pool.parallel_for(rows, [&](std::size_t r, int) {
    std::vector<float> row(cols);
    to_floats(format, static_cast<const char*>(data.get()) + r * row_bytes(format, cols), cols, row.data());
    const float scale = to.scales[r] = kernels::fp8_scale(row.data(), cols);
    for (std::size_t i = 0; i < cols; ++i) {
      const auto code = to.codes[r * cols + i] = kernels::to_fp8(row[i], scale);
      const double error = double(scale) * kernels::from_e4m3(code) - row[i];
      squares[r] += double(row[i]) * row[i];
      errors[r] += error * error;
    }
  });
  if (std::ranges::any_of(to.scales, [](float s) { return std::isnan(s); }))
    throw failure(errc::unsupported,
                  tensors.where(name) + ": tensor " + shown(name) + " has weights that are not finite");
  for (std::size_t r = 0; r < rows; ++r) {
    to.squares += squares[r];
    to.errors += errors[r];
  }
  return to;
}

} // namespace

export_result export_fp8(const std::string& model, const std::filesystem::path& folder, kernels::thread_pool& pool,
                         const progress_fn& progress, const log_sink& log) {
  const auto source = open_folder(model, log);
  new_folder to(folder);
  const auto matrices = layer_matrices(source.config);
  export_result result;
  safetensors_writer out;
  std::vector<std::pair<std::string, bool>> parts; // a tensor, or the scales of one
  for (const auto& name : tensors_used(source.config)) {
    const auto& info = *source.tensors->find(name);
    result.stored_bytes += info.bytes;
    const bool quantised = std::ranges::find(matrices, name) != matrices.end();
    out.add_tensor(name, quantised ? "F8_E4M3" : to_string(info.type), quantised ? 1 : size_of(info.type), info.shape);
    parts.emplace_back(name, false);
    if (!quantised)
      continue;
    out.add_tensor(name + "_scale", "F32", sizeof(float), {info.shape[0], 1});
    parts.emplace_back(name, true);
    result.weights += info.shape[0] * info.shape[1];
    result.matrix_bytes += info.shape[0] * (info.shape[1] + sizeof(float));
  }
  fp8_rows made;
  tensor_data kept;
  double squares = 0, errors = 0;
  std::size_t done = 0;
  out.write(to.path() / "model.safetensors", [&](std::size_t index) -> std::span<const std::byte> {
    const auto& [name, scales] = parts[index];
    if (scales)
      return std::as_bytes(std::span(made.scales));
    const auto bytes = source.tensors->find(name)->bytes;
    done += bytes;
    if (progress)
      progress(done, result.stored_bytes);
    if (std::ranges::find(matrices, name) == matrices.end()) {
      kept = source.tensors->read(name);
      return {static_cast<const std::byte*>(kept.get()), bytes};
    }
    made = quantise_fp8(*source.tensors, name, pool);
    squares += made.squares;
    errors += made.errors;
    return std::as_bytes(std::span(made.codes));
  });
  describe_folder(path_of_model(model), to.path(), fp8_quantization);
  to.commit();
  result.written_bytes = out.tensor_bytes();
  result.relative_error = squares > 0 ? std::sqrt(errors / squares) : 0;
  return result;
}

} // namespace troupe
