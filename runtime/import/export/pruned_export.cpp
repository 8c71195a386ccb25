#include "runtime/import/export/pruned_export.hpp"

#include "kernels/formats/bf16.hpp"
#include "kernels/formats/f16.hpp"
#include "runtime/checkpoint/quantised/pruned_tensors.hpp"
#include "runtime/checkpoint/safetensors_writer.hpp"
#include "runtime/checkpoint/weight_values.hpp"
#include "runtime/import/export/folder_export.hpp"
#include "runtime/import/gguf/gguf_names.hpp"
#include "runtime/model/tensor_names.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace troupe {

namespace {

/// The storage as compressed-tensors 0.12 writes it for a model that is not quantised.
constexpr const char* pruned_storage = R"({
    "format": "dense",
    "quant_method": "compressed-tensors",
    "quantization_status": "compressed",
    "sparsity_config": {
      "format": "sparse-24-bitmask",
      "global_sparsity": 0.5,
      "ignore": ["lm_head"],
      "sparsity_structure": "2:4",
      "targets": ["Linear"]
    }
  })";

/// The tensors of one matrix.
struct pruned_matrix {
  std::vector<std::byte> values;
  std::vector<std::uint8_t> mask;
  std::int64_t shape[2] = {};
  double squares = 0, errors = 0;
};

class pruned_exporter {
public:
  pruned_exporter(const model_source& source, kernels::thread_pool& pool, const pruning& how)
    : source_(source), pool_(pool), how_(how), matrices_(layer_matrices(source.config)) {
    for (const auto& name : matrices_) {
      const auto& shape = source.tensors->find(name)->shape;
      if (shape[1] % 8 != 0)
        throw failure(errc::unsupported,
                      source.name + ": " + shown(name) + " has the shape " + to_string(shape) +
                        "; 2 of 4 weights are stored for rows of a multiple of 8");
      if (how.importance != nullptr)
        (void)importance_of(name, shape[1]);
    }
  }

  export_result write(const std::filesystem::path& file, const progress_fn& progress) {
    safetensors_writer out;
    export_result result;
    std::vector<std::pair<std::string, int>> parts; // a plain tensor, or one of the three of a matrix
    for (const auto& name : tensors_used(source_.config)) {
      const auto& info = *source_.tensors->find(name);
      result.stored_bytes += info.bytes;
      if (!is_pruned_matrix(name)) {
        out.add_tensor(name, to_string(info.type), size_of(info.type), info.shape);
        parts.emplace_back(name, -1);
        continue;
      }
      const auto stem = name.substr(0, name.rfind('.'));
      const auto rows = info.shape[0], cols = info.shape[1];
      out.add_tensor(stem + ".compressed", to_string(info.type), size_of(info.type), {rows, cols / 2});
      out.add_tensor(stem + std::string(pruned_mask_suffix), "U8", 1, {rows, cols / 8});
      out.add_tensor(stem + ".shape", "I64", sizeof(std::int64_t), {2, 1});
      for (int part = 0; part < 3; ++part)
        parts.emplace_back(name, part);
      result.weights += rows * cols;
      result.matrix_bytes += rows * (cols / 2 * size_of(info.type) + cols / 8);
    }
    std::size_t done = 0;
    double squares = 0, errors = 0;
    tensor_data kept;
    pruned_matrix made;
    out.write(file, [&](std::size_t index) -> std::span<const std::byte> {
      const auto& [name, part] = parts[index];
      const auto bytes = source_.tensors->find(name)->bytes;
      if (part <= 0) {
        done += bytes;
        if (progress)
          progress(done, result.stored_bytes);
      }
      if (part < 0) {
        kept = source_.tensors->read(name);
        return {static_cast<const std::byte*>(kept.get()), bytes};
      }
      if (part == 0) {
        made = prune(name);
        squares += made.squares;
        errors += made.errors;
      }
      return part == 0 ? std::span<const std::byte>(made.values)
        : part == 1    ? std::as_bytes(std::span(made.mask))
                       : std::as_bytes(std::span(made.shape));
    });
    result.written_bytes = out.tensor_bytes();
    result.relative_error = squares > 0 ? std::sqrt(errors / squares) : 0;
    return result;
  }

private:
  bool is_pruned_matrix(const std::string& name) const { return std::ranges::find(matrices_, name) != matrices_.end(); }

  std::span<const float> importance_of(const std::string& name, std::size_t inputs) const {
    const auto* known = how_.importance->find(gguf_tensor_name(name));
    if (known == nullptr || known->mean_squares.size() != inputs)
      throw failure(errc::bad_request,
                    "the importance matrix is of another model: it has nothing for the " + std::to_string(inputs) +
                      " inputs of " + shown(name));
    return known->mean_squares;
  }

  pruned_matrix prune(const std::string& name) {
    const auto& info = *source_.tensors->find(name);
    const auto format = *weight_format_of(info.type);
    const auto data = source_.tensors->read(name);
    const auto rows = info.shape[0], cols = info.shape[1], size = size_of(info.type);
    pruned_matrix to;
    to.values.resize(rows * cols / 2 * size);
    to.mask.resize(rows * cols / 8);
    to.shape[0] = static_cast<std::int64_t>(rows);
    to.shape[1] = static_cast<std::int64_t>(cols);
    std::vector<float> sizes(cols, 1.0f); // of the inputs
    if (how_.importance != nullptr)
      std::ranges::transform(importance_of(name, cols), sizes.begin(), [](float square) { return std::sqrt(square); });
    const auto feedback = how_.feedback ? how_.feedback(name) : nullptr;
    std::vector<double> squares(rows), errors(rows);
    const auto tasks = (rows + feedback_rows - 1) / feedback_rows;
    pool_.parallel_for(tasks, [&](std::size_t task, int) {
      const auto first = task * feedback_rows, count = std::min(feedback_rows, rows - first);
      std::vector<float> stored(count * cols), left;
      for (std::size_t r = 0; r < count; ++r)
        to_floats(format, static_cast<const char*>(data.get()) + (first + r) * cols * size, cols, &stored[r * cols]);
      left = stored;
      if (feedback != nullptr)
        prune_with_feedback(format, left, *feedback);
      for (std::size_t r = 0; r < count; ++r) {
        const auto row = first + r;
        std::byte* values = to.values.data() + row * cols / 2 * size;
        for (std::size_t i = 0; i < cols; i += 4) {
          const float* four = &left[r * cols + i];
          float scores[4];
          for (std::size_t k = 0; k < 4; ++k)
            scores[k] = std::abs(four[k]) * sizes[i + k];
          const auto kept = kept_of_four(scores);
          to.mask[row * cols / 8 + i / 8] |= static_cast<std::uint8_t>(kept << i % 8);
          for (std::size_t k = 0; k < 4; ++k) {
            const double before = stored[r * cols + i + k], after = (kept >> k & 1) != 0 ? four[k] : 0;
            squares[row] += before * before;
            errors[row] += (after - before) * (after - before);
            if ((kept >> k & 1) == 0)
              continue;
            put(values, format, four[k]);
            values += size;
          }
        }
      }
    });
    for (std::size_t r = 0; r < rows; ++r) {
      if (!std::isfinite(squares[r]) || !std::isfinite(errors[r]))
        throw failure(errc::unsupported,
                      source_.tensors->where(name) + ": tensor " + shown(name) + " has weights that are not finite");
      to.squares += squares[r];
      to.errors += errors[r];
    }
    return to;
  }

  static void put(std::byte* to, kernels::weight_format format, float value) {
    if (format == kernels::weight_format::f32) {
      std::memcpy(to, &value, sizeof value);
      return;
    }
    const std::uint16_t bits = format == kernels::weight_format::f16 ? kernels::to_f16(value) : kernels::to_bf16(value);
    std::memcpy(to, &bits, sizeof bits);
  }

  const model_source& source_;
  kernels::thread_pool& pool_;
  const pruning& how_;
  std::vector<std::string> matrices_;
};

} // namespace

export_result export_pruned(const std::string& model, const std::filesystem::path& folder, kernels::thread_pool& pool,
                            const pruning& how, const progress_fn& progress, const log_sink& log) {
  const auto source = open_folder(model, log);
  new_folder to(folder);
  const auto result = pruned_exporter(source, pool, how).write(to.path() / "model.safetensors", progress);
  describe_folder(path_of_model(model), to.path(), pruned_storage);
  to.commit();
  return result;
}

} // namespace troupe
