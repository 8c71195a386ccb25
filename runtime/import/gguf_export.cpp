#include "runtime/import/gguf_export.hpp"

#include "runtime/checkpoint/quantise_blocks.hpp"
#include "runtime/checkpoint/weight_values.hpp"
#include "runtime/import/gguf_layout.hpp"
#include "runtime/import/gguf_model.hpp"
#include "runtime/import/model_source.hpp"
#include "runtime/model/tensor_names.hpp"
#include "runtime/support/utf8.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <tuple>

namespace troupe {

namespace {

namespace fs = std::filesystem;

/// Covers most things that tokenizers treat differently.
constexpr std::string_view probe =
  "Hello, world! I've 12345 apples, don't WE'LL x=3.14;\n\n  d\u00e9j\u00e0 vu, nai\u0308ve \u65e5\u672c\u8a9e "
  "\U0001F642\t\tfoo_bar  -- \"quoted\" (2024-01-02)\r\n";

/// llama3's scaling as divisors of the frequencies, which GGUF stores as a tensor. Empty for other types.
std::vector<float> rope_divisors(const model_config& config) {
  if (config.rope.type != rope_type::llama3)
    return {};
  rope_config plain;
  plain.theta = config.rope.theta;
  auto divisors = inverse_frequencies(plain, config.head_dim, 1);
  const auto scaled = inverse_frequencies(config.rope, config.head_dim, 1);
  for (std::size_t i = 0; i < divisors.size(); ++i)
    divisors[i] /= scaled[i];
  return divisors;
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

  export_result write(gguf_writer& file, const fs::path& path, const std::vector<float>& divisors,
                      const progress_fn& progress) {
    for (auto& layout : layout_)
      add(file, std::move(layout));
    if (!divisors.empty())
      file.add_tensor("rope_freqs.weight", tensor_type::f32, {divisors.size()});
    std::size_t done = 0;
    file.write(path, [&](std::size_t index) {
      if (index == tensors_.size())
        return std::as_bytes(std::span(divisors));
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
  same("what attention sees", config.chunks, made_of.chunks);
  same("how scores grow", config.growth, made_of.growth);
  same("which activation", config.act, made_of.act);
  same("where norms are", config.norms, made_of.norms);
  same("which heads are normed", std::tuple(config.qk_norm, config.qk_norm_whole, config.qk_norm_behind),
       std::tuple(made_of.qk_norm, made_of.qk_norm_whole, made_of.qk_norm_behind));
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
  same("how scores are scaled", close(scale(config), scale(made_of)), true);
  same("how values are scaled",
       close(config.embedding_scale, made_of.embedding_scale) && close(config.logit_scale, made_of.logit_scale) &&
         close(config.residual_scale, made_of.residual_scale) && close(config.logit_cap, made_of.logit_cap) &&
         close(config.attention_cap, made_of.attention_cap),
       true);
}

/// Reads the tokenizer back from the metadata, and checks that it encodes a text identically.
void check_tokenizer(const gguf_writer& metadata, const tokenizer& tokens, const std::string& model) {
  const auto head = metadata.head();
  const auto name = model + " as GGUF";
  const auto read = make_gguf_tokenizer(read_gguf(std::as_bytes(std::span(head)), name).metadata, name);
  const auto check = [&](std::string_view text) {
    if (read->encode(text, true) != tokens.encode(text, true))
      throw failure(errc::unsupported, model + ": GGUF cannot say how its tokenizer cuts " + shown(text));
  };
  check("a");
  check(probe);
  for (token_id id = 0; static_cast<std::size_t>(id) < tokens.vocab_size(); ++id)
    if (const auto text = tokens.token_bytes(id); is_utf8(text))
      check(text);
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

} // namespace

export_result export_gguf(const std::string& name, const export_format& format, const fs::path& file,
                          kernels::thread_pool& pool, const export_options& options, const progress_fn& progress,
                          const log_sink& log) {
  check_target(file);
  const auto model = path_of_model(name);
  const auto source = open_model(model);
  if (!source.load_tokenizer)
    throw failure(errc::unsupported, model + " has no tokenizer, which a GGUF file must have");
  if (gguf_architecture_for(source.config).empty())
    throw failure(errc::unsupported,
                  model + ": models of the family `" + source.config.family + "` cannot be written as GGUF");
  for (const auto& line : source.remarks)
    if (log)
      log(line);
  // Nemotron's layers are two in a folder, and one in files.
  const auto mtp = source.mtp && source.mtp->config.part().count() == 1 ? source.mtp : std::nullopt;
  const auto all = with_mtp_layers(source.config, mtp);
  for (auto& line : check_tensors(*source.tensors, source.config, mtp ? tensors_used(*mtp) : std::set<std::string>()))
    if (log)
      log(std::move(line));
  gguf_writer out;
  auto divisors = rope_divisors(source.config);
  const auto original = gguf_file_of(model);
  std::error_code ignored; // there is no such file
  if (original &&
      std::ranges::any_of(source.files, [&](const auto& f) { return fs::equivalent(f.path, file, ignored); }))
    throw failure(errc::bad_request, file.string() + ": is the file being read; give the result another name");
  check_matrices(source, model, format, original.has_value(), options);
  auto layout = gguf_layout(all, original.has_value());
  if (mtp)
    std::ranges::move(gguf_mtp_layout(*mtp), std::back_inserter(layout));
  if (auto line = unknown_importances(options, *source.tensors, layout); line && log)
    log(*std::move(line));
  if (original) {
    const gguf_file opened(*original);
    for (const auto& [key, value] : opened.metadata().all())
      if (key != "general.file_type" && key != "general.quantization_version" && key != "general.alignment" &&
          !key.starts_with("split."))
        out.add(key, value);
    divisors = source.config.rope.divisors;
  } else {
    const auto tokens = source.load_tokenizer();
    describe_model(out, model, all, source.generation, *tokens);
    if (mtp)
      out.add(std::string(gguf_architecture_for(all)) + ".nextn_predict_layers", std::uint32_t{1});
    check_tokenizer(out, *tokens, model);
  }
  out.add("general.quantization_version", std::uint32_t{2});
  out.add("general.file_type", format.file_type);
  const auto result = exporter(source, format, std::move(layout), pool, options).write(out, file, divisors, progress);
  check_written(file, source.config, model);
  return result;
}

} // namespace troupe
