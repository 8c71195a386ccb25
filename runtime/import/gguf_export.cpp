#include "runtime/import/gguf_export.hpp"

#include "runtime/checkpoint/quantise_blocks.hpp"
#include "runtime/checkpoint/weight_values.hpp"
#include "runtime/import/gguf_architectures.hpp"
#include "runtime/import/gguf_layout.hpp"
#include "runtime/import/gguf_model.hpp"
#include "runtime/import/gguf_own.hpp"
#include "runtime/import/gguf_pooling.hpp"
#include "runtime/import/hub_cache.hpp"
#include "runtime/import/model_source.hpp"
#include "runtime/model/tensor_names.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <tuple>

namespace troupe {

namespace {

namespace fs = std::filesystem;

/// Scaling of positions that GGUF stores as divisors of the frequencies.
std::vector<further_tensor> rope_divisors(const model_config& config) {
  std::vector<further_tensor> result;
  const auto add = [&](const char* name, const std::vector<float>& divisors) {
    if (!divisors.empty())
      result.push_back({name, {divisors.size()}, divisors});
  };
  add("rope_freqs.weight", config.rope.divisors);
  add("rope_factors_short.weight", config.rope.short_divisors);
  add("rope_factors_long.weight", config.rope.long_divisors);
  if (config.rope.type != rope_type::llama3 && config.rope.type != rope_type::proportional)
    return result;
  constexpr float never = 1e30f; // of dimensions that do not rotate
  rope_config plain;
  plain.theta = config.rope.theta;
  auto divisors = inverse_frequencies(plain, config.head_dim, 1);
  const auto scaled = inverse_frequencies(config.rope, config.head_dim, 1);
  for (std::size_t i = 0; i < divisors.size(); ++i)
    divisors[i] = scaled[i] == 0 ? never : divisors[i] / scaled[i];
  add("rope_freqs.weight", divisors);
  return result;
}

/// Learned activations, which files have among their keys.
void describe_activations(gguf_writer& to, const checkpoint& tensors, const model_config& config) {
  if (config.act.type != kernels::activation_type::xielu)
    return;
  for (const auto& [name, usual] : {std::pair("alpha_p", config.act.alpha), std::pair("alpha_n", config.act.negative),
                                    std::pair("beta", config.act.beta), std::pair("eps", config.act.limit)}) {
    std::vector<float> values;
    for (int i = 0; i < config.layers; ++i) {
      const auto tensor = "model.layers." + std::to_string(i) + ".mlp.act_fn." + name;
      const auto* info = tensors.find(tensor);
      auto& value = values.emplace_back(usual);
      if (info && !has_blocks(info->type))
        to_floats(*weight_format_of(info->type), tensors.read(tensor).get(), 1, &value);
    }
    to.add(std::string("xielu.") + name, values);
  }
}

bool is_outer(std::string_view tensor) { return tensor == "model.embed_tokens.weight" || tensor == "lm_head.weight"; }

/// Refuses files that would only be copied, and quantising quantised weights unless `requantise`.
void check_matrices(const model_source& source, const std::string& model, const export_format& format, bool is_gguf,
                    const export_options& options) {
  std::string other;
  bool changes = false;
  for (const auto& name : tensors_used(source.config)) {
    const auto& info = *source.tensors->find(name);
    if (info.shape.size() == 1 || is_exact_when_written(name) ||
        info.type == written_type(name, info, format, source.config, {options.pure, options.importance != nullptr}))
      continue;
    if (is_outer(name) && !is_float(*format.type.format()))
      continue;
    changes = true;
    if (has_blocks(info.type) && info.type != tensor_type::fp8) // 8 bits that GGUF has no type for
      other = to_string(info.type);
  }
  if (is_gguf && !changes)
    throw failure(errc::bad_request,
                  model + ": its matrices are " +
                    (format.mix == mix_style::none ? std::string(to_string(format.type)) : std::string(format.name)) +
                    " already");
  if (!other.empty() && !options.requantise)
    throw failure(errc::bad_request,
                  model + ": its matrices are quantised already, to " + other + "; take the original, " +
                    "or quantise it again with --requantize, which adds to its error");
}

/// The importances of part `part` of a tensor of the file, such as an expert; null if there are none. Throws if they are
/// of another matrix.
const float* importance_of(const export_options& options, const laid_out_tensor& tensor, std::size_t part) {
  const auto* found = options.importance ? options.importance->find(tensor.name) : nullptr;
  if (!found && options.importance) // as other forms of the model call it
    found = options.importance->find(gguf_tensor_name(tensor.parts[part].name));
  if (!found || tensor.shape.size() == 1)
    return nullptr;
  const auto inputs = tensor.shape.back(), values = found->mean_squares.size();
  if (values == inputs)
    return found->mean_squares.data();
  if (values == inputs * tensor.parts.size())
    return found->mean_squares.data() + part * inputs;
  throw failure(errc::bad_request,
                "the importance matrix is of another model: it has " + std::to_string(values) + " values for " +
                  shown(tensor.name) + ", whose rows have " + std::to_string(inputs) + " weights");
}

/// A sentence about matrices without importances; nothing if all have some.
std::optional<std::string> unknown_importances(const export_options& options, const checkpoint& tensors,
                                               const std::vector<laid_out_tensor>& layout) {
  std::size_t unknown = 0, known = 0;
  std::string example;
  for (const auto& tensor : layout) {
    if (tensors.find(tensor.parts.front().name)->shape.size() == 1 || is_outer(tensor.parts.front().name) ||
        is_exact_when_written(tensor.parts.front().name))
      continue;
    if (importance_of(options, tensor, 0)) {
      ++known;
    } else {
      ++unknown;
      example = tensor.name;
    }
  }
  if (!options.importance || unknown == 0)
    return std::nullopt;
  if (known == 0)
    throw failure(errc::bad_request, "the importance matrix is of another model: it has nothing for " + shown(example));
  return "the importance matrix has nothing for " + std::to_string(unknown) + " matrices, such as " + shown(example);
}

/// The conversion of one tensor.
struct exported {
  laid_out_tensor layout;
  tensor_type type;
};

class exporter {
public:
  exporter(const model_source& source, const export_format& format, std::vector<laid_out_tensor> layout,
           kernels::thread_pool& pool, const export_options& options)
    : source_(source), format_(format), layout_(std::move(layout)), pool_(pool), options_(options) {}

  export_result write(gguf_writer& file, const fs::path& path, const std::vector<further_tensor>& further,
                      const progress_fn& progress) {
    for (auto& layout : layout_)
      add(file, std::move(layout));
    for (const auto& tensor : further)
      file.add_tensor(tensor.name, tensor_type::f32, tensor.shape);
    std::size_t done = 0;
    file.write(path, [&](std::size_t index) {
      if (index >= tensors_.size())
        return std::as_bytes(std::span(further[index - tensors_.size()].values));
      written_.clear();
      const auto& tensor = tensors_[index];
      for (std::size_t part = 0; part < tensor.layout.parts.size(); ++part) {
        append(tensor, part);
        done += source_.tensors->find(tensor.layout.parts[part].name)->bytes;
      }
      if (progress)
        progress(done, result_.stored_bytes);
      return std::as_bytes(std::span(written_));
    });
    result_.written_bytes = file.tensor_bytes();
    result_.relative_error = squares_ > 0 ? std::sqrt(errors_ / squares_) : 0;
    return result_;
  }

private:
  void add(gguf_writer& file, laid_out_tensor layout) {
    // Parts of one tensor have one type: the one that fits all of them.
    auto type = written_type(layout.parts.front().name, *source_.tensors->find(layout.parts.front().name), format_,
                             source_.config, {options_.pure, options_.importance != nullptr});
    if (layout.shape.size() == 1)
      type = tensor_type::f32;
    for (const auto& part : layout.parts)
      result_.stored_bytes += source_.tensors->find(part.name)->bytes;
    file.add_tensor(layout.name, type, layout.shape);
    if (layout.shape.size() > 1) {
      std::size_t rows = 1;
      for (std::size_t i = 0; i + 1 < layout.shape.size(); ++i)
        rows *= layout.shape[i];
      result_.weights += rows * layout.shape.back();
      result_.matrix_bytes += rows * row_bytes(*weight_format_of(type), layout.shape.back());
    }
    tensors_.push_back({std::move(layout), type});
  }

  /// Converts a part behind what is `written_`.
  void append(const exported& tensor, std::size_t index) {
    const auto& part = tensor.layout.parts[index];
    const auto& info = *source_.tensors->find(part.name);
    const auto data = source_.tensors->read(part.name);
    const auto from = *weight_format_of(info.type), to = *weight_format_of(tensor.type);
    // Elements of a vector are rows of their own where they change places.
    const bool vector = info.shape.size() == 1;
    const auto cols = vector && part.rows ? 1 : info.shape.back();
    const auto rows = part.rows ? part.rows->size() : vector ? info.shape.front() / cols : info.shape.front();
    const bool changed = part.columns || part.factor != 1 || part.offset != 0 || part.negated_exponential;
    if (changed && has_blocks(info.type))
      throw failure(errc::unsupported,
                    source_.tensors->where(part.name) + ": tensor " + shown(part.name) + " is stored as " +
                      std::string(to_string(info.type)) + ", which GGUF has in another order; take the original");
    const auto stored_row = row_bytes(from, cols), written_row = row_bytes(to, cols);
    const auto begin = written_.size();
    written_.resize(begin + rows * written_row);
    std::vector<double> squares(rows), errors(rows);
    const float* importance = vector ? nullptr : importance_of(options_, tensor.layout, index);
    const bool blocks = has_blocks(tensor.type) && from != to;
    const auto feedback = blocks && options_.feedback ? options_.feedback(part.name) : nullptr;
    const auto stored = [&](std::size_t row) {
      return static_cast<const char*>(data.get()) + (part.rows ? part.rows->at(row) : row) * stored_row;
    };
    pool_.parallel_for((rows + feedback_rows - 1) / feedback_rows, [&](std::size_t task, int) {
      const auto first = task * feedback_rows, count = std::min(feedback_rows, rows - first);
      char* place = written_.data() + begin + first * written_row;
      if (from == to && !changed) {
        for (std::size_t r = 0; r < count; ++r)
          std::copy_n(stored(first + r), stored_row, place + r * written_row);
        return;
      }
      std::vector<float> values(count * cols), back(cols);
      for (std::size_t r = 0; r < count; ++r)
        to_floats(from, stored(first + r), cols, &values[r * cols]);
      if (changed)
        for (std::size_t r = 0; r < count; ++r)
          change(part, std::span(&values[r * cols], cols), back);
      if (feedback) {
        auto used_up = values;
        quantise_with_feedback(to, used_up, *feedback, place);
      }
      for (std::size_t r = 0; r < count; ++r) {
        if (!feedback)
          quantise_row(to, &values[r * cols], cols, place + r * written_row, importance);
        to_floats(to, place + r * written_row, cols, back.data());
        for (std::size_t i = 0; i < cols; ++i) {
          const double value = values[r * cols + i];
          squares[first + r] += value * value;
          errors[first + r] += (back[i] - value) * (back[i] - value);
        }
      }
    });
    for (std::size_t row = 0; row < rows && !vector; ++row) {
      squares_ += squares[row];
      errors_ += errors[row];
    }
  }

  static void change(const laid_out_tensor::part& part, std::span<float> row, std::vector<float>& room) {
    if (part.columns) {
      room.assign(row.begin(), row.end());
      for (std::size_t i = 0; i < row.size(); ++i)
        row[i] = room[part.columns->at(i)];
    }
    for (float& value : row)
      value = part.negated_exponential ? -std::exp(value) : value * part.factor + part.offset;
  }

  const model_source& source_;
  const export_format& format_;
  std::vector<laid_out_tensor> layout_;
  kernels::thread_pool& pool_;
  const export_options& options_;
  std::vector<exported> tensors_;
  std::vector<char> written_; // one tensor's
  export_result result_;
  double squares_ = 0, errors_ = 0;
};

/// Rotations are compared by what they do, at a few lengths.
bool rotate_alike(const rope_config& one, const rope_config& other, int head_dim, int context) {
  if (std::abs(one.attention_factor - other.attention_factor) > 1e-6 * other.attention_factor)
    return false;
  for (const int length : {1, context / 2 + 1, context}) {
    const auto a = inverse_frequencies(one, head_dim, length), b = inverse_frequencies(other, head_dim, length);
    if (!std::ranges::equal(a, b, [](float x, float y) { return std::abs(x - y) <= 1e-6f * std::abs(y) + 1e-25f; }))
      return false;
  }
  return true;
}

/// Refuses a file that says something else than what it was made of: not all that configurations say has a key.
void check_written(const fs::path& file, const model_config& made_of, const std::string& model) {
  const auto config = open_gguf(file).config;
  const auto same = [&](const char* what, const auto& a, const auto& b) {
    if (a == b)
      return;
    std::error_code ignored;
    fs::remove(file, ignored);
    throw failure(errc::unsupported, model + ": GGUF cannot say " + what + " of a `" + made_of.family + "` model");
  };
  same("which layers have a window", config.windows, made_of.windows);
  const auto unrotated = [](const model_config& c) {
    std::vector<bool> layers;
    for (int i = 0; i < c.layers; ++i)
      layers.push_back(c.is_unrotated(i));
    return layers;
  };
  same("which layers rotate", unrotated(config), unrotated(made_of));
  const auto rotates = [&](bool slides) {
    for (int i = 0; i < made_of.layers; ++i)
      if (made_of.parts_of(i).attention && !made_of.is_unrotated(i) && made_of.slides(i) == slides)
        return true;
    return false;
  };
  const auto rope_of = [](const model_config& c, bool slides) {
    return slides && c.local_rope ? *c.local_rope : c.rope;
  };
  for (const bool slides : {false, true}) {
    const int dim = slides && made_of.local_head_dim > 0 ? made_of.local_head_dim : made_of.head_dim;
    if (rotates(slides))
      same("how positions rotate",
           rotate_alike(rope_of(config, slides), rope_of(made_of, slides), dim, made_of.max_context), true);
  }
  same("how positions enter", config.positions, made_of.positions);
  same("how many positions there are", config.max_context >= made_of.max_context, true);
  same("whether tokens see what follows", std::tuple(config.encoder, config.token_types, config.embedding_norm),
       std::tuple(made_of.encoder, made_of.token_types, made_of.embedding_norm));
  same("what attention sees", config.chunks, made_of.chunks);
  same("how scores grow", config.growth, made_of.growth);
  same("which activation", config.act, made_of.act);
  same("where norms are", std::tuple(config.norms, config.skips_first_norm, config.final_norm),
       std::tuple(made_of.norms, made_of.skips_first_norm, made_of.final_norm));
  same("which heads are normed",
       std::tuple(config.qk_norm, config.qk_norm_whole, config.qk_norm_behind, config.value_norm),
       std::tuple(made_of.qk_norm, made_of.qk_norm_whole, made_of.qk_norm_behind, made_of.value_norm));
  const auto widths = [](const model_config& c) {
    std::vector<std::tuple<int, int, int, int>> layers;
    for (int i = 0; i < c.layers; ++i)
      layers.emplace_back(c.parts_of(i).attention ? c.head_dim_of(i) : 0,
                          c.parts_of(i).attention ? c.kv_heads_of(i) : 0, c.kv_layer_of(i),
                          c.parts_of(i).mlp && !c.is_sparse(i) ? c.ffn_of(i) : 0);
    return layers;
  };
  same("the shapes of layers", widths(config), widths(made_of));
  same("how streams are updated", std::tuple(config.altup, config.gate_cutoffs),
       std::tuple(made_of.altup, made_of.gate_cutoffs));
  same("what layers get of each token", std::tuple(config.layer_inputs, config.layer_scales),
       std::tuple(made_of.layer_inputs, made_of.layer_scales));
  same("which branches are parallel", std::tuple(config.parallel, config.shared_norm),
       std::tuple(made_of.parallel, made_of.shared_norm));
  const auto routed = [](expert_config experts) { // of one group it does not matter how good it is
    experts.group_by_two = experts.group_by_two && experts.groups > 1;
    return experts;
  };
  same("how experts are chosen", routed(config.experts), routed(made_of.experts));
  same("which layers have experts", config.sparse, made_of.sparse);
  same("which layers have what", config.parts, made_of.parts);
  const auto& one = config.recurrent;
  const auto& other = made_of.recurrent;
  same("how its layers recur",
       std::tuple(one.type, one.taps, one.conv_bias, one.heads, one.key_heads, one.key_dim, one.value_dim, one.norm,
                  one.norm_group, one.head_norm, one.rank, one.least_dt, one.most_dt > one.least_dt),
       std::tuple(other.type, other.taps, other.conv_bias, other.heads, other.key_heads, other.key_dim, other.value_dim,
                  other.norm, other.norm_group, other.head_norm, other.rank, other.least_dt,
                  other.most_dt > other.least_dt));
  if (made_of.family == "falcon_h1")
    return; // whose scales are part of the weights
  const auto close = [](float a, float b) { return std::abs(a - b) <= 1e-6f * std::abs(b); };
  const auto scale = [](const model_config& c) {
    return c.attention_scale != 0 ? c.attention_scale : 1 / std::sqrt(static_cast<float>(c.head_dim));
  };
  same("how scores are scaled", close(scale(config), scale(made_of)) && config.alibi_scale == made_of.alibi_scale,
       true);
  same("how values are scaled",
       close(config.embedding_scale, made_of.embedding_scale) && close(config.logit_scale, made_of.logit_scale) &&
         close(config.residual_scale, made_of.residual_scale) && close(config.logit_cap, made_of.logit_cap) &&
         close(config.attention_cap, made_of.attention_cap),
       true);
}

/// Only a regular file may be replaced; a link, a pipe or a device is probably a mistake.
void check_target(const fs::path& file) {
  if (file.filename().empty())
    throw failure(errc::bad_request, shown(file.string()) + " does not name a file");
  std::error_code ignored;
  const auto there = fs::symlink_status(file, ignored);
  if (fs::exists(there) && !fs::is_regular_file(there))
    throw failure(errc::bad_request,
                  file.string() + ": exists and is " +
                    (fs::is_symlink(there)       ? "a link"
                       : fs::is_directory(there) ? "a folder"
                                                 : "not a regular file") +
                    "; give the result another name");
}

/// A model to be written.
struct export_task {
  const model_source& source;
  std::string model; // for messages
  const export_format& format;
  const fs::path& file;
  kernels::thread_pool& pool;
  const export_options& options;
  const progress_fn& progress;
  const log_sink& log;

  export_result write(gguf_writer& out, std::vector<laid_out_tensor> layout,
                      const std::vector<further_tensor>& further) const {
    if (auto line = unknown_importances(options, *source.tensors, layout); line && log)
      log(*std::move(line));
    out.add("general.quantization_version", std::uint32_t{2});
    out.add("general.file_type", format.file_type);
    return exporter(source, format, std::move(layout), pool, options).write(out, file, further, progress);
  }
};

void append_further(std::vector<further_tensor>& to, std::vector<further_tensor> more) {
  std::ranges::move(more, std::back_inserter(to));
}

/// In llama.cpp's form, from a folder. `words`: tokenizer and what goes with it, described. Throws failure(unsupported)
/// where that form cannot hold the model.
export_result write_as_llama(const export_task& task, gguf_writer words) {
  const auto& source = task.source;
  const auto architecture = gguf_architecture_for(source.config);
  if (architecture.empty())
    throw failure(errc::unsupported,
                  task.model + ": GGUF has no architecture for models of the family `" + source.config.family + "`");
  const auto& mtp = source.mtp;
  const bool folds = mtp && folds_mtp_layers(*mtp);
  if (mtp && mtp->config.part().count() != 1 && !folds)
    throw failure(errc::unsupported, task.model + ": GGUF cannot say how its layers predict further tokens");
  const auto all = with_mtp_layers(source.config, mtp);
  describe_model(words, folds ? folded_mtp_layers(all) : all, task.model);
  describe_activations(words, *source.tensors, source.config);
  auto layout = gguf_layout(all, false);
  auto further = rope_divisors(source.config);
  append_further(further, describe_pooling(words, architecture, false, source));
  if (mtp) {
    words.add(std::string(gguf_architecture_for(all)) + ".nextn_predict_layers", std::uint32_t{1});
    if (folds)
      fold_mtp_layout(layout, mtp->config.part().first);
    std::ranges::move(gguf_mtp_layout(*mtp), std::back_inserter(layout));
  }
  const auto result = task.write(words, std::move(layout), further);
  check_written(task.file, source.config, task.model);
  return result;
}

/// In Troupe's own form.
export_result write_as_own(const export_task& task, gguf_writer words, const fs::path& folder) {
  describe_own(words, folder, task.source.config);
  describe_activations(words, *task.source.tensors, task.source.config);
  const auto further = describe_pooling(words, own_architecture, true, task.source);
  const auto result = task.write(words, own_layout(task.source), further);
  if (open_gguf(task.file).config != task.source.config)
    throw failure(errc::internal, task.file.string() + ": says something else than the model that it was made of");
  return result;
}

/// Tensors of heads of a file, which stay as they are.
std::vector<further_tensor> layers_over_pooled_states(const gguf_file& file, const checkpoint& tensors) {
  std::vector<further_tensor> result;
  for (const auto& [name, tensor] : file.tensors()) {
    const auto is = [&](std::string_view stem) { return name.starts_with(stem); };
    const auto* info = is("cls.") || is("dense_") || is("head.") ? tensors.find(name) : nullptr;
    const auto format = info ? weight_format_of(info->type) : std::nullopt;
    if (!format || has_blocks(info->type))
      continue;
    auto& own = result.emplace_back(further_tensor{name, info->shape, {}});
    std::size_t count = 1;
    for (const auto size : info->shape)
      count *= size;
    own.values.resize(count);
    to_floats(*format, tensors.read(name).get(), count, own.values.data());
  }
  return result;
}

/// From another file, whose metadata stays.
export_result write_again(const export_task& task, const fs::path& original) {
  const auto& source = task.source;
  const gguf_file opened(original);
  gguf_writer out;
  for (const auto& [key, value] : opened.metadata().all())
    if (key != "general.file_type" && key != "general.quantization_version" && key != "general.alignment" &&
        !key.starts_with("split."))
      out.add(key, value);
  const bool own = is_own_form(opened);
  std::vector<laid_out_tensor> layout;
  if (own) {
    layout = own_layout(source);
  } else {
    layout = gguf_layout(with_mtp_layers(source.config, source.mtp), true);
    if (source.mtp)
      std::ranges::move(gguf_mtp_layout(*source.mtp), std::back_inserter(layout));
  }
  auto further = own ? std::vector<further_tensor>() : rope_divisors(source.config);
  append_further(further, layers_over_pooled_states(opened, *source.tensors));
  const auto result = task.write(out, std::move(layout), further);
  if (!own)
    check_written(task.file, source.config, task.model);
  return result;
}

} // namespace

export_result export_gguf(const std::string& name, const export_format& format, const fs::path& file,
                          kernels::thread_pool& pool, const export_options& options, const progress_fn& progress,
                          const log_sink& log) {
  check_target(file);
  const auto model = path_of_model(name);
  const auto source = open_model(model);
  if (!source.load_tokenizer)
    throw failure(errc::unsupported, model + " has no tokenizer, which a GGUF file must have");
  const auto say = [&](std::string line) {
    if (log)
      log(std::move(line));
  };
  std::ranges::for_each(source.remarks, say);
  std::ranges::for_each(
    check_tensors(*source.tensors, source.config, source.mtp ? tensors_used(*source.mtp) : std::set<std::string>()),
    say);
  const auto original = gguf_file_of(model);
  std::error_code ignored; // there is no such file
  if (original &&
      std::ranges::any_of(source.files, [&](const auto& f) { return fs::equivalent(f.path, file, ignored); }))
    throw failure(errc::bad_request, file.string() + ": is the file being read; give the result another name");
  check_matrices(source, model, format, original.has_value(), options);
  const export_task task{source, model, format, file, pool, options, progress, log};
  if (original)
    return write_again(task, *original);
  gguf_writer words;
  words.add("general.name", hub_id_of(model).value_or(fs::weakly_canonical(model).filename().string()));
  std::ranges::for_each(describe_words(words, model, source.config, source.generation, *source.load_tokenizer(), model),
                        say);
  try {
    return write_as_llama(task, words);
  } catch (const failure& f) {
    if (f.what_failed().code != errc::unsupported)
      throw;
    say(std::string(f.what()) + "; the file has a form of Troupe's own, which llama.cpp does not read");
  }
  return write_as_own(task, std::move(words), model);
}

} // namespace troupe
