#include "runtime/import/gguf/gguf_export.hpp"

#include "runtime/checkpoint/weight_values.hpp"
#include "runtime/import/gguf/gguf_architectures.hpp"
#include "runtime/import/gguf/gguf_check.hpp"
#include "runtime/import/gguf/gguf_layout.hpp"
#include "runtime/import/gguf/gguf_own.hpp"
#include "runtime/import/gguf/gguf_pooling.hpp"
#include "runtime/import/gguf/gguf_tensors.hpp"
#include "runtime/import/gguf_model.hpp"
#include "runtime/import/head_tensors.hpp"
#include "runtime/import/hub_cache.hpp"
#include "runtime/import/model_source.hpp"
#include "runtime/model/tensor_names.hpp"

#include <algorithm>
#include <optional>

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
    if (has_blocks(info.type) && !is_fp8(info.type)) // 8 bits that GGUF has no type for
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
    return write_gguf_tensors(source, format, std::move(layout), further, out, file, pool, options, progress);
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
  std::ranges::for_each(check_tensors(*source.tensors, source.config, head_tensors(source)), say);
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
