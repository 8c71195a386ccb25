#include "runtime/engine/draft_loader.hpp"

#include "runtime/execution/device.hpp"
#include "runtime/support/json_text.hpp"

#include <algorithm>

namespace troupe {

namespace {

/// Rows of a pass. More would make short sequences wait for the prompts of others, fewer would compute prompts slowly.
constexpr int least_draft_rows = 128;

std::string spelling(const tokenizer& of, token_id id) {
  return of.token(id).empty() ? "unused" : json_text(of.token(id));
}

} // namespace

std::optional<std::string> vocabulary_difference(const tokenizer& draft, const tokenizer& target) {
  const auto common = static_cast<token_id>(std::min(draft.vocab_size(), target.vocab_size()));
  for (token_id id = 0; id < common; ++id)
    if (draft.token(id) != target.token(id))
      return "token " + std::to_string(id) + " is " + spelling(draft, id) + ", not " + spelling(target, id);
  if (draft.vocab_size() != target.vocab_size())
    return "it has " + std::to_string(draft.vocab_size()) + " tokens, not " + std::to_string(target.vocab_size());
  return std::nullopt;
}

std::unique_ptr<draft_loader> open_draft(const engine_options& options, const model_source& target,
                                         const tokenizer* target_tokenizer) {
  if (options.draft.empty())
    return nullptr;
  auto source = open_model(options.draft);
  const auto refuse = [&](const std::string& why) {
    throw failure(errc::bad_request,
                  "the draft model " + source.name + " has another vocabulary than " + target.name + ": " + why,
                  "draft");
  };
  const auto tokenizer = source.load_tokenizer ? source.load_tokenizer() : nullptr;
  if (!tokenizer != !target_tokenizer)
    refuse(tokenizer ? "only the draft model has a tokenizer" : "the draft model has no tokenizer");
  if (tokenizer) {
    if (const auto why = vocabulary_difference(*tokenizer, *target_tokenizer))
      refuse(*why);
  } else if (source.config.vocab != target.config.vocab) {
    refuse("it has " + std::to_string(source.config.vocab) + " tokens, not " + std::to_string(target.config.vocab));
  }
  return std::make_unique<draft_loader>(std::move(source));
}

void draft_loader::prepare(const engine_options& options, const device& device, const kernels::backend& backend,
                           int context) {
  draft_.precision = precision_of(options.compute, *source_.tensors, device.capabilities());
  draft_.precision.sparsity = 0; // guesses are made as well as the draft can
  draft_.vocab = source_.config.vocab;
  draft_.sizes = {std::max(least_draft_rows, options.max_sequences), options.max_sequences,
                  std::min(context, source_.config.max_context)};
  need_ = estimate_memory(*source_.tensors, source_.config, draft_.precision, device, backend, draft_.sizes);
}

memory_estimate draft_loader::with(memory_estimate target) const {
  target.weights += need_.weights;
  target.activations += need_.activations;
  target.scratch += need_.scratch;
  target.kv_block += need_.kv_block;
  return target;
}

std::shared_ptr<const loaded_draft> draft_loader::load(const engine_options& options, kernels::backend& backend,
                                                       const progress_fn& progress, const log_sink& log) {
  draft_.weights = load_weights(source_, options.compute, draft_.precision, backend, progress, log);
  return std::make_shared<const loaded_draft>(draft_);
}

} // namespace troupe
