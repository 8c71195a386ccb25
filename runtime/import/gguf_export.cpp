#include "runtime/import/gguf_export.hpp"

#include "runtime/checkpoint/quantise_blocks.hpp"
#include "runtime/checkpoint/weight_values.hpp"
#include "runtime/import/gguf_model.hpp"
#include "runtime/import/model_source.hpp"
#include "runtime/model/tensor_names.hpp"
#include "runtime/support/utf8.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace troupe {

namespace {

namespace fs = std::filesystem;

constexpr std::array formats{export_format{"q8_0", tensor_type::q8_0}, export_format{"q4_0", tensor_type::q4_0},
                             export_format{"q4_1", tensor_type::q4_1}};

/// llama.cpp's number for a file's predominant type.
std::uint32_t file_type(tensor_type type) { return type == tensor_type::q8_0 ? 7 : type == tensor_type::q4_0 ? 2 : 3; }

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

tensor_type written_type(std::string_view tensor, const tensor_info& info, tensor_type to) {
  if (info.shape.size() == 1)
    return tensor_type::f32;
  const auto type = is_outer(tensor) ? tensor_type::q8_0 : to;
  return info.shape.back() % kernels::block_inputs(*weight_format_of(type)) == 0 ? type : tensor_type::f16;
}

/// Refuses files that would only be copied, and quantising quantised weights unless `requantise`.
void check_matrices(const model_source& source, const std::string& model, tensor_type to, bool is_gguf,
                    bool requantise) {
  std::string other;
  bool changes = false;
  for (const auto& name : tensors_used(source.config)) {
    const auto& info = *source.tensors->find(name);
    if (info.shape.size() == 1 || is_outer(name) || info.type == written_type(name, info, to))
      continue;
    changes = true;
    if (has_blocks(info.type) && info.type != tensor_type::fp8) // 8 bits that GGUF has no type for
      other = to_string(info.type);
  }
  if (is_gguf && !changes)
    throw failure(errc::bad_request, model + ": its matrices are " + std::string(to_string(to)) + " already");
  if (!other.empty() && !requantise)
    throw failure(errc::bad_request,
                  model + ": its matrices are quantised already, to " + other + "; take the original, " +
                    "or quantise it again with --requantize, which adds to its error");
}

/// The conversion of one tensor.
struct exported {
  std::string name; // in the checkpoint
  tensor_type type;
  std::size_t rotated_heads = 0; // for q and k of a llama, whose rows change order; else 0
};

class exporter {
public:
  exporter(const model_source& source, tensor_type to, kernels::thread_pool& pool)
    : source_(source), to_(to), pool_(pool) {}

  export_result write(gguf_writer& file, const fs::path& path, const std::vector<float>& divisors,
                      const progress_fn& progress) {
    for (const auto& name : tensors_used(source_.config))
      add(file, name);
    if (!divisors.empty())
      file.add_tensor("rope_freqs.weight", tensor_type::f32, {divisors.size()});
    std::size_t done = 0;
    file.write(path, [&](std::size_t index) {
      if (index == tensors_.size())
        return std::as_bytes(std::span(divisors));
      make_tensor(tensors_[index]);
      done += source_.tensors->find(tensors_[index].name)->bytes;
      if (progress)
        progress(done, result_.stored_bytes);
      return std::as_bytes(std::span(written_));
    });
    result_.written_bytes = file.tensor_bytes();
    result_.relative_error = squares_ > 0 ? std::sqrt(errors_ / squares_) : 0;
    return result_;
  }

private:
  void add(gguf_writer& file, const std::string& name) {
    const auto& config = source_.config;
    const auto& info = *source_.tensors->find(name);
    exported tensor{name, written_type(name, info, to_)};
    const bool q = name.find(".q_proj.") != name.npos, k = name.find(".k_proj.") != name.npos;
    if ((q || k) && (config.family == "llama" || config.family == "mistral"))
      tensor.rotated_heads = static_cast<std::size_t>(q ? config.heads : config.kv_heads);
    file.add_tensor(gguf_tensor_name(name), tensor.type, info.shape);
    result_.stored_bytes += info.bytes;
    tensors_.push_back(std::move(tensor));
  }

  /// Converts the tensor into `written_`.
  void make_tensor(const exported& tensor) {
    const auto& info = *source_.tensors->find(tensor.name);
    const auto data = source_.tensors->read(tensor.name);
    const auto from = *weight_format_of(info.type), to = *weight_format_of(tensor.type);
    const auto cols = info.shape.back(), rows = info.shape.size() == 1 ? 1 : info.shape.front();
    const auto stored_row = row_bytes(from, cols), written_row = row_bytes(to, cols);
    written_.resize(rows * written_row);
    std::vector<double> squares(rows), errors(rows);
    const bool vector_of_rows = info.shape.size() == 1 && tensor.rotated_heads > 0;
    pool_.parallel_for(rows, [&](std::size_t row, int) {
      const auto source = vector_of_rows ? row : source_row(tensor, row, rows);
      const char* stored = static_cast<const char*>(data.get()) + source * stored_row;
      char* place = written_.data() + row * written_row;
      if (from == to)
        return void(std::copy_n(stored, stored_row, place));
      std::vector<float> values(cols), back(cols);
      to_floats(from, stored, cols, values.data());
      quantise_row(to, values.data(), cols, place);
      to_floats(to, place, cols, back.data());
      for (std::size_t i = 0; i < cols; ++i) {
        squares[row] += double(values[i]) * values[i];
        errors[row] += (double(back[i]) - values[i]) * (double(back[i]) - values[i]);
      }
    });
    if (vector_of_rows)
      reorder_bias(tensor, written_, cols);
    for (std::size_t row = 0; row < rows && info.shape.size() > 1; ++row) {
      squares_ += squares[row];
      errors_ += errors[row];
    }
  }

  /// The source of row `row` of the file: the halves of a head become interleaved.
  static std::size_t source_row(const exported& tensor, std::size_t row, std::size_t rows) {
    if (tensor.rotated_heads == 0)
      return row;
    const auto dim = rows / tensor.rotated_heads, in_head = row % dim;
    return row - in_head + in_head % 2 * (dim / 2) + in_head / 2;
  }

  /// The same for a bias, with rows of one f32.
  static void reorder_bias(const exported& tensor, std::vector<char>& written, std::size_t count) {
    const auto before = written;
    for (std::size_t row = 0; row < count; ++row)
      std::copy_n(before.data() + source_row(tensor, row, count) * sizeof(float), sizeof(float),
                  written.data() + row * sizeof(float));
  }

  const model_source& source_;
  tensor_type to_;
  kernels::thread_pool& pool_;
  std::vector<exported> tensors_;
  std::vector<char> written_; // one tensor's
  export_result result_;
  double squares_ = 0, errors_ = 0;
};

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

std::span<const export_format> export_formats() { return formats; }

export_result export_gguf(const std::string& name, tensor_type to, const fs::path& file, kernels::thread_pool& pool,
                          const progress_fn& progress, const log_sink& log, bool requantise) {
  check_target(file);
  const auto model = path_of_model(name);
  const auto source = open_model(model);
  if (!source.load_tokenizer)
    throw failure(errc::unsupported, model + " has no tokenizer, which a GGUF file must have");
  constexpr std::array<std::string_view, 4> written{"llama", "mistral", "qwen2", "qwen3"};
  if (const auto& family = source.config.family; std::ranges::find(written, family) == written.end())
    throw failure(errc::unsupported,
                  model + ": models of the family `" + family +
                    "` cannot be written as GGUF, supported are llama, mistral, qwen2 and qwen3");
  for (const auto& line : source.remarks)
    if (log)
      log(line);
  for (auto& line : check_tensors(*source.tensors, source.config))
    if (log)
      log(std::move(line));
  gguf_writer out;
  auto divisors = rope_divisors(source.config);
  const auto original = gguf_file_of(model);
  std::error_code ignored; // there is no such file
  if (original &&
      std::ranges::any_of(source.files, [&](const auto& f) { return fs::equivalent(f.path, file, ignored); }))
    throw failure(errc::bad_request, file.string() + ": is the file being read; give the result another name");
  check_matrices(source, model, to, original.has_value(), requantise);
  if (original) {
    const gguf_file opened(*original);
    for (const auto& [key, value] : opened.metadata().all())
      if (key != "general.file_type" && key != "general.quantization_version" && key != "general.alignment" &&
          !key.starts_with("split."))
        out.add(key, value);
    divisors = source.config.rope.divisors;
  } else {
    const auto tokens = source.load_tokenizer();
    describe_model(out, model, source.config, source.generation, *tokens);
    check_tokenizer(out, *tokens, model);
  }
  out.add("general.quantization_version", std::uint32_t{2});
  out.add("general.file_type", file_type(to));
  return exporter(source, to, pool).write(out, file, divisors, progress);
}

} // namespace troupe
