// What guesses for a model that is being loaded: a draft model, or the model's own layers of multi-token prediction, or
// nothing but the texts. Makes the speculators of its schedulers and the draft_models of its replicas.
#pragma once

#include "runtime/engine/loading/guess_part.hpp"
#include "runtime/engine/loading/second_model.hpp"
#include "runtime/techniques/speculation/mtp_part.hpp"

#include <memory>
#include <string>

namespace troupe {

/// What a draft model computes on.
struct draft_place {
  std::shared_ptr<const device> own = {}; // null: it takes turns with the model, on the device of its last stage
  compute_options compute = {};           // as they concern it
  bool apart = false;                     // from what the model computes on: both compute at the same time
};

class speculation_part final : public guess_part {
public:
  /// Throws failure for a draft model of another vocabulary, and where guesses are asked for that cannot be.
  speculation_part(const engine_options& options, const opened_model& of, const log_sink& log);

  std::string name() const override;
  const device* own_device() const override { return place_.own.get(); }
  memory_estimate prepare(const engine_options& options, const opened_stage& last, int context) override;
  loaded_guesses load(const engine_options& options, const technique_values& internals, loaded_model& model,
                      const part_loading& with) override;

private:
  std::unique_ptr<second_model> draft_; // null: none
  draft_place place_;
  std::unique_ptr<mtp_part> mtp_; // null: there are no such layers, or they are not to guess
  bool recurrent_;                // layers, which bound how many guesses a sequence may have
};

} // namespace troupe
