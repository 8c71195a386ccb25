// Opens, checks and loads the draft model that `engine_options::draft` names. Used by load_model, which first plans the
// memory of both models.
#pragma once

#include "runtime/engine/loader.hpp"
#include "runtime/model/memory_estimate.hpp"

#include <memory>
#include <optional>
#include <string>

namespace troupe {

/// Why the tokens of `draft` are not those of `target`, for a person; nothing if they are.
std::optional<std::string> vocabulary_difference(const tokenizer& draft, const tokenizer& target);

class draft_loader {
public:
  explicit draft_loader(model_source source) : source_(std::move(source)) {}

  /// Decides types and sizes. `context`: of the target.
  void prepare(const engine_options& options, const device& device, const kernels::backend& backend, int context);

  const std::string& name() const { return source_.name; }

  /// The memory of both models. A block is one of each KV cache.
  memory_estimate with(memory_estimate target) const;

  std::shared_ptr<const loaded_draft> load(const engine_options& options, kernels::backend& backend,
                                           const progress_fn& progress, const log_sink& log);

private:
  model_source source_;
  loaded_draft draft_;
  memory_estimate need_;
};

/// Null if there is to be no draft model. Throws failure(bad_request), naming `draft`, if its vocabulary is not the
/// target's, and as `open_model`. `target_tokenizer` may be null.
std::unique_ptr<draft_loader> open_draft(const engine_options& options, const model_source& target,
                                         const tokenizer* target_tokenizer);

} // namespace troupe
