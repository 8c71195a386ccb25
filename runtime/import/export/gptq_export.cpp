#include "runtime/import/export/gptq_export.hpp"

#include "kernels/formats/f16.hpp"
#include "runtime/checkpoint/safetensors_writer.hpp"
#include "runtime/checkpoint/weight_values.hpp"
#include "runtime/import/export/folder_export.hpp"
#include "runtime/model/tensor_names.hpp"

#include <algorithm>
#include <cmath>

namespace troupe {

namespace {

constexpr std::size_t packed_word_bits = 32;

/// Codes packed one after another into 32-bit words, along `count` of them.
std::size_t packed_words(std::size_t count, int bits) {
  return count * static_cast<std::size_t>(bits) / packed_word_bits;
}

void put_code(std::uint32_t* words, std::size_t stride, std::size_t index, int bits, std::uint32_t code) {
  const auto at = index * static_cast<std::size_t>(bits);
  words[at / packed_word_bits * stride] |= code << at % packed_word_bits;
  if (at % packed_word_bits + static_cast<std::size_t>(bits) > packed_word_bits) // across two words: 3 bits
    words[(at / packed_word_bits + 1) * stride] |= code >> (packed_word_bits - at % packed_word_bits);
}

/// A matrix as a GPTQ checkpoint stores it.
struct gptq_tensors {
  std::vector<std::uint32_t> codes;   // [inputs * bits / 32, outputs]
  std::vector<std::uint32_t> zeros;   // [groups, outputs * bits / 32]
  std::vector<std::uint16_t> scales;  // f16 [groups, outputs]
  std::vector<std::int32_t> group_of; // [inputs]
};

struct gptq_shape {
  std::string stem; // "model.layers.0.mlp.up_proj"
  std::size_t outputs = 0, inputs = 0, group = 0;
  std::size_t groups() const { return inputs / group; }
};

std::string quantization_of(const gptq_options& options) {
  const auto& format = options.format;
  const auto flag = [](bool on) { return on ? "true" : "false"; };
  return "{\n    \"bits\": " + std::to_string(format.bits) +
    ",\n    \"checkpoint_format\": \"gptq\",\n    \"damp_percent\": 0.01,\n    \"desc_act\": " +
    flag(options.by_importance) +
    ",\n    \"group_size\": " + (format.group == 0 ? "-1" : std::to_string(format.group)) +
    ",\n    \"lm_head\": false,\n    \"quant_method\": \"gptq\",\n    \"sym\": " + flag(format.symmetric) + "\n  }";
}

class gptq_exporter {
public:
  gptq_exporter(const model_source& source, const gptq_options& options, kernels::thread_pool& pool,
                const feedback_fn& feedback)
    : source_(source), options_(options), pool_(pool), feedback_(feedback) {
    for (const auto& name : layer_matrices(source.config))
      plan(name);
  }

  export_result write(const std::filesystem::path& file, const progress_fn& progress, const log_sink& log) {
    safetensors_writer out;
    const auto bits = options_.format.bits;
    std::vector<std::pair<std::string, int>> parts; // a plain tensor, or one of the four of a matrix
    for (const auto& shape : shapes_) {
      out.add_tensor(shape.stem + ".qweight", "I32", 4, {packed_words(shape.inputs, bits), shape.outputs});
      out.add_tensor(shape.stem + ".qzeros", "I32", 4, {shape.groups(), packed_words(shape.outputs, bits)});
      out.add_tensor(shape.stem + ".scales", "F16", 2, {shape.groups(), shape.outputs});
      out.add_tensor(shape.stem + ".g_idx", "I32", 4, {shape.inputs});
      for (int part = 0; part < 4; ++part)
        parts.emplace_back(shape.stem, part);
    }
    const auto quantised_bytes = out.tensor_bytes();
    for (const auto& name : tensors_used(source_.config)) {
      const auto& info = *source_.tensors->find(name);
      result_.stored_bytes += info.bytes;
      if (is_quantised(name))
        continue;
      out.add_tensor(name, to_string(info.type), size_of(info.type), info.shape);
      parts.emplace_back(name, -1);
    }
    std::size_t done = 0;
    tensor_data kept;
    out.write(file, [&](std::size_t index) -> std::span<const std::byte> {
      const auto& [name, part] = parts[index];
      if (part <= 0) {
        done += source_.tensors->find(part < 0 ? name : name + ".weight")->bytes;
        if (progress)
          progress(done, result_.stored_bytes);
      }
      if (part < 0) {
        kept = source_.tensors->read(name);
        return {static_cast<const std::byte*>(kept.get()), source_.tensors->find(name)->bytes};
      }
      if (part == 0)
        quantise(*std::ranges::find(shapes_, name, &gptq_shape::stem), log);
      return part == 0 ? std::as_bytes(std::span(made_.codes))
        : part == 1    ? std::as_bytes(std::span(made_.zeros))
        : part == 2    ? std::as_bytes(std::span(made_.scales))
                       : std::as_bytes(std::span(made_.group_of));
    });
    result_.written_bytes = out.tensor_bytes();
    result_.matrix_bytes = quantised_bytes;
    result_.relative_error = squares_ > 0 ? std::sqrt(errors_ / squares_) : 0;
    return result_;
  }

private:
  void plan(const std::string& name) {
    const auto& info = *source_.tensors->find(name);
    gptq_shape shape{name.substr(0, name.rfind('.')), info.shape.at(0), info.shape.at(1), options_.format.group};
    if (shape.group == 0)
      shape.group = shape.inputs;
    if (shape.inputs % packed_word_bits != 0 || shape.outputs % packed_word_bits != 0)
      throw failure(errc::unsupported,
                    source_.name + ": " + shown(name) + " has the shape " + to_string(info.shape) +
                      "; GPTQ's files hold multiples of 32 outputs and inputs");
    if (shape.inputs % shape.group != 0)
      throw failure(errc::bad_request,
                    source_.name + ": the " + std::to_string(shape.inputs) + " inputs of " + shown(name) +
                      " are no multiple of the group of " + std::to_string(shape.group) +
                      "; choose another --group-size, such as 32");
    result_.weights += shape.outputs * shape.inputs;
    shapes_.push_back(std::move(shape));
  }

  bool is_quantised(const std::string& name) const {
    return std::ranges::any_of(shapes_, [&](const gptq_shape& s) { return s.stem + ".weight" == name; });
  }

  /// Without anything known of the inputs, all count alike.
  std::shared_ptr<const error_feedback> feedback_of(const gptq_shape& shape, const log_sink& log) {
    if (auto known = feedback_(shape.stem + ".weight"))
      return known;
    if (log)
      log("the text has shown nothing of the inputs of " + shape.stem);
    std::vector<double> unit(shape.inputs * shape.inputs);
    for (std::size_t i = 0; i < shape.inputs; ++i)
      unit[i * shape.inputs + i] = 1;
    return std::make_shared<error_feedback>(make_error_feedback(std::move(unit), shape.inputs, false, pool_));
  }

  void quantise(const gptq_shape& shape, const log_sink& log) {
    const auto name = shape.stem + ".weight";
    const auto& info = *source_.tensors->find(name);
    const auto from = *weight_format_of(info.type);
    const auto data = source_.tensors->read(name);
    const auto feedback = feedback_of(shape, log);
    const auto n = shape.inputs, groups = shape.groups();
    std::vector<std::uint8_t> codes(shape.outputs * n), zeros(shape.outputs * groups);
    std::vector<std::uint16_t> scales(shape.outputs * groups);
    made_.group_of.assign(n, 0);
    for (std::size_t i = 0; i < n; ++i)
      made_.group_of[feedback->order[i]] = static_cast<std::int32_t>(i / shape.group);
    std::vector<double> squares(shape.outputs), errors(shape.outputs);
    pool_.parallel_for((shape.outputs + feedback_rows - 1) / feedback_rows, [&](std::size_t task, int) {
      const auto first = task * feedback_rows, count = std::min(feedback_rows, shape.outputs - first);
      std::vector<float> rows(count * n);
      std::vector<gptq_row> to;
      for (std::size_t r = 0; r < count; ++r) {
        to_floats(from, static_cast<const char*>(data.get()) + (first + r) * row_bytes(from, n), n, &rows[r * n]);
        to.push_back({&codes[(first + r) * n], &scales[(first + r) * groups], &zeros[(first + r) * groups]});
      }
      const auto before = rows;
      quantise_with_feedback(options_.format, rows, *feedback, to);
      for (std::size_t r = 0; r < count; ++r)
        for (std::size_t i = 0; i < n; ++i) {
          const auto g = static_cast<std::size_t>(made_.group_of[i]);
          const double value = double(kernels::from_f16(to[r].scales[g])) * (int(to[r].codes[i]) - int(to[r].zeros[g]));
          const double weight = before[r * n + i];
          squares[first + r] += weight * weight;
          errors[first + r] += (value - weight) * (value - weight);
        }
    });
    for (std::size_t r = 0; r < shape.outputs; ++r) {
      squares_ += squares[r];
      errors_ += errors[r];
    }
    pack(shape, codes, scales, zeros);
  }

  void pack(const gptq_shape& shape, const std::vector<std::uint8_t>& codes, const std::vector<std::uint16_t>& scales,
            const std::vector<std::uint8_t>& zeros) {
    const int bits = options_.format.bits;
    const auto n = shape.inputs, outputs = shape.outputs, groups = shape.groups();
    made_.codes.assign(packed_words(n, bits) * outputs, 0);
    made_.zeros.assign(groups * packed_words(outputs, bits), 0);
    made_.scales.assign(groups * outputs, 0);
    for (std::size_t o = 0; o < outputs; ++o) {
      for (std::size_t i = 0; i < n; ++i)
        put_code(&made_.codes[o], outputs, i, bits, codes[o * n + i]);
      for (std::size_t g = 0; g < groups; ++g) {
        made_.scales[g * outputs + o] = scales[o * groups + g];
        put_code(&made_.zeros[g * packed_words(outputs, bits)], 1, o, bits, zeros[o * groups + g] - 1u);
      }
    }
  }

  const model_source& source_;
  const gptq_options& options_;
  kernels::thread_pool& pool_;
  const feedback_fn& feedback_;
  std::vector<gptq_shape> shapes_;
  gptq_tensors made_; // of one matrix
  export_result result_;
  double squares_ = 0, errors_ = 0;
};

} // namespace

export_result export_gptq(const std::string& name, const gptq_options& options, const std::filesystem::path& folder,
                          kernels::thread_pool& pool, const feedback_fn& feedback, const progress_fn& progress,
                          const log_sink& log) {
  const auto source = open_folder(name, log);
  new_folder to(folder);
  gptq_exporter exporter(source, options, pool, feedback);
  const auto result = exporter.write(to.path() / "model.safetensors", progress, log);
  describe_folder(path_of_model(name), to.path(), quantization_of(options));
  to.commit();
  return result;
}

} // namespace troupe
