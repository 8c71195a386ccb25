// Opens, checks and loads a model beside the engine's, of the same vocabulary, for a technique: one that it runs beside
// the first (technique::run_beside), or that guesses (guess_part.hpp). Used by load_model, which first plans the memory
// of all.
#pragma once

#include "runtime/checkpoint/packed/packed_cache.hpp"
#include "runtime/engine/loading/loaded_model.hpp"
#include "runtime/import/model_source.hpp"
#include "runtime/model/decoder/memory_estimate.hpp"

#include <memory>
#include <optional>
#include <string>

namespace troupe {

/// Why the tokens of `one` are not those of `target`, for a person; nothing if they are.
std::optional<std::string> vocabulary_difference(const tokenizer& one, const tokenizer& target);

class second_model {
public:
  second_model(model_source source, const technique* of) : source_(std::move(source)) { loaded_.of = of; }

  /// Decides types and sizes. `rows`: of a pass; `context`: of the engine's model.
  void prepare(const engine_options& options, const device& device, const kernels::backend& backend, int rows,
               int context);

  const technique* of() const { return loaded_.of; }
  const std::string& name() const { return source_.name; }
  const model_config& config() const { return source_.config; }
  const model_source& source() const { return source_; }
  troupe::precision precision() const { return loaded_.precision; }

  /// The memory of `others` and this. A block is one of each KV cache.
  memory_estimate with(memory_estimate others) const;
  std::size_t block_bytes() const { return kv_shape_of(config(), precision(), 1).block_bytes(); }

  loaded_second load(const engine_options& options, kernels::backend& backend, const progress_fn& progress,
                     const log_sink& log);

private:
  model_source source_;
  loaded_second loaded_;
  memory_estimate need_;
};

/// Null if `path` is empty. `of`: whose it is; `role`: the option that names it. Throws failure(bad_request) that names
/// the role if the vocabulary is not the target's, and as `open_model`. `target_tokenizer` may be null.
std::unique_ptr<second_model> open_second(const std::string& path, const technique* of, const std::string& role,
                                          const model_source& target, const tokenizer* target_tokenizer);

} // namespace troupe
