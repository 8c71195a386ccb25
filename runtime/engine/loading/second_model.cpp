#include "runtime/engine/loading/second_model.hpp"

#include "runtime/engine/loading/named_precision.hpp"
#include "runtime/engine/loading/weight_loading.hpp"
#include "runtime/execution/device.hpp"
#include "runtime/support/json/json_text.hpp"

#include <algorithm>

namespace troupe {

namespace {

std::string spelling(const tokenizer& of, token_id id) {
  return of.token(id).empty() ? "unused" : json_text(of.token(id));
}

} // namespace

std::optional<std::string> vocabulary_difference(const tokenizer& one, const tokenizer& target) {
  const auto common = static_cast<token_id>(std::min(one.vocab_size(), target.vocab_size()));
  for (token_id id = 0; id < common; ++id)
    if (one.token(id) != target.token(id))
      return "token " + std::to_string(id) + " is " + spelling(one, id) + ", not " + spelling(target, id);
  if (one.vocab_size() != target.vocab_size())
    return "it has " + std::to_string(one.vocab_size()) + " tokens, not " + std::to_string(target.vocab_size());
  return std::nullopt;
}

std::unique_ptr<second_model> open_second(const std::string& path, const technique* of, const std::string& role,
                                          const model_source& target, const tokenizer* target_tokenizer) {
  if (path.empty())
    return nullptr;
  auto source = open_model(path);
  if (source.config.recurrent)
    throw failure(errc::unsupported,
                  "the " + role + " model " + source.name + " has recurrent layers, which only the main model may have",
                  role);
  const auto refuse = [&](const std::string& why) {
    throw failure(errc::bad_request,
                  "the " + role + " model " + source.name + " has another vocabulary than " + target.name + ": " + why,
                  role);
  };
  const auto tokenizer = source.load_tokenizer ? source.load_tokenizer() : nullptr;
  if (!tokenizer != !target_tokenizer)
    refuse((tokenizer ? "only the " + role + " model has a" : "the " + role + " model has no") + " tokenizer");
  if (tokenizer) {
    if (const auto why = vocabulary_difference(*tokenizer, *target_tokenizer))
      refuse(*why);
  } else if (source.config.vocab != target.config.vocab) {
    refuse("it has " + std::to_string(source.config.vocab) + " tokens, not " + std::to_string(target.config.vocab));
  }
  return std::make_unique<second_model>(std::move(source), of);
}

void second_model::prepare(const engine_options& options, const device& device, const kernels::backend& backend,
                           int rows, int context) {
  loaded_.precision = precision_of(options.compute, *source_.tensors, device.capabilities());
  loaded_.precision.attention_threshold = 0;
  loaded_.precision.sparsity = {}; // guesses and contrasts are made as well as the model can
  loaded_.vocab = source_.config.vocab;
  loaded_.sizes = {
    .rows = rows, .sequences = options.max_sequences, .context = std::min(context, source_.config.max_context)};
  need_ = estimate_memory(*source_.tensors, source_.config, loaded_.precision, device, backend, loaded_.sizes);
}

memory_estimate second_model::with(memory_estimate others) const { return others += need_; }

loaded_second second_model::load(const engine_options& options, kernels::backend& backend, const progress_fn& progress,
                                 const log_sink& log) {
  auto compute = options.compute;
  if (compute.weights == "mapped")
    compute.weights = "auto"; // it is small, and read for every token of the other
  loaded_.weights = load_weights(source_, compute, loaded_.precision, backend, progress, log);
  return loaded_;
}

} // namespace troupe
