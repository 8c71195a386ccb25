#include "runtime/engine/loading/calibration.hpp"

#include "runtime/engine/loading/memory_plan.hpp"
#include "runtime/engine/loading/weight_loading.hpp"
#include "runtime/execution/device.hpp"
#include "runtime/import/gguf/gguf_architectures.hpp"
#include "runtime/import/gguf/gguf_layout.hpp"
#include "runtime/import/gguf/gguf_names.hpp"
#include "runtime/model/decoder/memory_estimate.hpp"

#include <algorithm>
#include <cmath>

namespace troupe {

namespace {

constexpr int observed_rows = 512; // of a step

std::vector<token_id> calibration_tokens(const model_source& source, const calibration_options& options, int context) {
  if (!source.load_tokenizer)
    throw failure(errc::unsupported, options.model + " has no tokenizer to read a text with");
  auto tokens = source.load_tokenizer()->encode(options.text, true);
  if (tokens.size() < 32)
    throw failure(errc::bad_request,
                  "a calibration text of " + std::to_string(tokens.size()) + " tokens is too short: it must have 32");
  if (options.windows > 0)
    tokens.resize(std::min(tokens.size(), as_size(options.windows) * as_size(context)));
  return tokens;
}

/// The name under which llama.cpp keeps a matrix's importances, and which of the matrices of that name it is.
struct importance_place {
  std::string name;
  std::size_t matrix = 0;
  row_order columns = {}; // which of its inputs, in the order of the file; null: all, as they are
};

using importance_places = std::map<std::string, importance_place>; // by matrix

/// The matrices that models with recurrent layers store together.
importance_places stored_together(const model_config& config, bool of_gguf) {
  importance_places places;
  if (!config.recurrent || gguf_architecture_for(config).empty())
    return places;
  for (const auto& tensor : gguf_layout(config, of_gguf))
    for (const auto& part : tensor.parts)
      if (part.name.find(".recurrent.") != part.name.npos || part.name.find(".attn_gate.") != part.name.npos)
        places.emplace(part.name, importance_place{tensor.name, 0, part.columns});
  return places;
}

importance_place importance_place_of(const std::string& matrix, const importance_places& known) {
  if (const auto found = known.find(matrix); found != known.end())
    return found->second;
  constexpr std::string_view marker = ".mlp.experts.";
  const auto at = matrix.find(marker);
  if (at == matrix.npos)
    return {gguf_tensor_name(matrix)};
  const auto number = at + marker.size(), end = matrix.find('.', number);
  const auto part = matrix.substr(end + 1, matrix.find("_proj", end) - end - 1); // gate, up or down
  const auto dense = gguf_tensor_name(matrix.substr(0, at) + ".mlp." + part + "_proj.weight");
  return {dense.substr(0, dense.rfind('.')) + "_exps.weight",
          static_cast<std::size_t>(std::stoul(matrix.substr(number, end - number)))};
}

} // namespace

calibration::calibration(const calibration_options& options, const progress_fn& progress, const log_sink& log)
  : source_(open_model(options.model)),
    of_gguf_(!is_synthetic(options.model) && gguf_file_of(path_of_model(options.model)).has_value()),
    context_(std::min(options.context, source_.config.max_context)),
    tokens_(calibration_tokens(source_, options, context_)) {
  const auto bare = source_.load_tokenizer()->encode("", true);
  if (!bare.empty())
    first_ = bare.front(); // BOS
  compute_options compute;
  compute.dtype = "f32";
  compute.device = "cpu";
  compute.threads = options.threads;
  const auto device = open_device(compute, {});
  backend_ = device->open();
  const precision exact(kernels::dtype::f32);
  const auto memory = estimate_memory(*source_.tensors, source_.config, exact, *backend_,
                                      {std::min(context_, observed_rows), 1, context_});
  const auto blocks = static_cast<std::size_t>((context_ + kernels::block_tokens - 1) / kernels::block_tokens);
  require_memory(source_.name, memory.fixed() + blocks * memory.kv_block, device->available_memory());
  weights_ = load_weights(source_, compute, exact, *backend_, progress, log);
}

void calibration::observe(const input_fn& seen, const progress_fn& progress) {
  observe_inputs(weights_, *backend_, tokens_, context_, std::min(context_, observed_rows), first_, seen, progress);
}

importance_table measure_importance(calibration& model, const std::string& text_name, const progress_fn& progress) {
  struct sums {
    std::vector<std::vector<double>> squares; // of each matrix of the name
    std::vector<std::uint64_t> rows;
  };
  std::map<std::string, sums> all;
  const auto known = stored_together(model.config(), model.of_gguf());
  model.observe(
    [&](const seen_inputs& seen) {
      std::vector<double> squares(seen.inputs);
      for (std::size_t r = 0; r < seen.rows; ++r)
        for (std::size_t i = 0; i < seen.inputs; ++i)
          squares[i] += double(seen.values[r * seen.inputs + i]) * seen.values[r * seen.inputs + i];
      for (const auto& matrix : seen.matrices) {
        const auto place = importance_place_of(matrix, known);
        auto& to = all[place.name];
        if (to.squares.size() <= place.matrix) {
          to.squares.resize(place.matrix + 1);
          to.rows.resize(place.matrix + 1);
        }
        to.squares[place.matrix].resize(seen.inputs);
        for (std::size_t i = 0; i < seen.inputs; ++i)
          to.squares[place.matrix][i] += squares[place.columns ? place.columns->at(i) : i];
        to.rows[place.matrix] += seen.rows;
      }
    },
    progress);
  importance_table table;
  table.text = text_name;
  table.chunks = static_cast<std::uint32_t>(model.windows());
  table.chunk_tokens = static_cast<std::uint32_t>(model.context());
  for (const auto& [name, sums] : all) {
    auto& to = table.tensors[name];
    to.counts = sums.rows;
    std::size_t inputs = 0;
    for (const auto& squares : sums.squares)
      inputs = std::max(inputs, squares.size());
    for (std::size_t m = 0; m < sums.squares.size(); ++m)
      for (std::size_t i = 0; i < inputs; ++i) {
        const double mean = sums.rows[m] > 0 ? sums.squares[m][i] / double(sums.rows[m]) : 0;
        if (!std::isfinite(mean))
          throw failure(errc::bad_request, "what " + shown(name) + " was multiplied with is not finite");
        to.mean_squares.push_back(static_cast<float>(mean));
      }
  }
  return table;
}

hessian_source::hessian_source(calibration& model, std::vector<std::string> matrices, std::size_t budget,
                               bool by_importance, kernels::thread_pool& pool, progress_fn progress)
  : model_(model),
    matrices_(std::move(matrices)),
    budget_(budget),
    by_importance_(by_importance),
    pool_(pool),
    progress_(std::move(progress)) {}

std::shared_ptr<const error_feedback> hessian_source::of(const std::string& matrix) {
  if (std::ranges::find(matrices_, matrix) == matrices_.end())
    return nullptr;
  if (!passed_.contains(matrix))
    gather(matrix);
  const auto key = key_.find(matrix);
  if (key == key_.end())
    return nullptr;
  if (key->second != last_) {
    const auto& sums = gathered_.at(key->second);
    feedback_.reset();
    feedback_ = std::make_shared<error_feedback>(
      make_error_feedback(sums.products, sums.inputs, by_importance_, pool_));
    last_ = key->second;
  }
  return feedback_;
}

void hessian_source::gather(const std::string& first) {
  gathered_.clear();
  key_.clear();
  last_.clear();
  feedback_.reset();
  std::set<std::string> wanted;
  std::size_t bytes = 0;
  for (auto at = std::ranges::find(matrices_, first); at != matrices_.end(); ++at) {
    const auto* info = model_.tensors().find(*at);
    const auto inputs = info ? info->shape.back() : 0;
    // Beside the sums there are the factor of one matrix and the steps towards it.
    bytes += inputs * inputs * sizeof(double);
    if (!wanted.empty() && bytes > budget_)
      break;
    wanted.insert(*at);
  }
  passed_.insert(wanted.begin(), wanted.end());
  model_.observe(
    [&](const seen_inputs& seen) {
      if (std::ranges::none_of(seen.matrices, [&](const auto& m) { return wanted.contains(m); }))
        return;
      const auto& key = seen.matrices.front();
      for (const auto& matrix : seen.matrices)
        if (wanted.contains(matrix))
          key_[matrix] = key;
      add_products(gathered_[key], seen);
    },
    progress_);
}

void hessian_source::add_products(sums& to, const seen_inputs& seen) {
  const auto n = seen.inputs;
  to.inputs = n;
  to.products.resize(n * n);
  std::vector<float> columns(n * seen.rows), products(n * n);
  for (std::size_t r = 0; r < seen.rows; ++r)
    for (std::size_t i = 0; i < n; ++i)
      columns[i * seen.rows + r] = seen.values[r * n + i];
  // Xᵀ X as a product with a matrix that has the columns of X as its rows: the backend's kernels are fast.
  auto& backend = model_.backend();
  const kernels::stored_matrix stored(columns.data(), kernels::dtype::f32, n, seen.rows);
  const auto packed = backend.pack({&stored, 1}, kernels::dtype::f32);
  backend.linear({products.data(), kernels::dtype::f32, n, n, n},
                 {columns.data(), kernels::dtype::f32, n, seen.rows, seen.rows}, *packed);
  for (std::size_t i = 0; i < n * n; ++i)
    to.products[i] += products[i];
}

} // namespace troupe
