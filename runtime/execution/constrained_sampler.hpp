// Samples, on the host, the sequences of one step_sampler that are constrained. Holds their sampling states and their
// constrained_texts, and rebuilds both when a plan brings a transcript. Masks are made while the forward pass runs. If a
// mask has not been made when a step is sampled, the row of logits is kept, the sequence is reported as deferred, and
// its token follows by `collect_late`. So a slow mask delays its own sequence only. Nothing waits here: who samples may
// ask which masks are lacking, and come later. Single-threaded, except for the callback and `draw_ahead`.
#pragma once

#include "runtime/execution/constrained_text.hpp"
#include "runtime/execution/mask_workers.hpp"
#include "runtime/execution/step_runner.hpp"
#include "runtime/sampling/sampler.hpp"
#include "runtime/scheduling/step.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace troupe {

/// What constraints and judged groups need to know of the one who samples: EOS ids, threads, whom to tell and to ask.
/// Shared by the parts of a sampler.
struct host_sampling {
  std::vector<token_id> eos_ids;
  std::shared_ptr<mask_workers> workers;
  std::function<void()> late;
  judge_line judge; // of searches

  host_sampling(std::vector<token_id> eos, host_settings settings)
    : eos_ids(std::move(eos)),
      workers(std::make_shared<mask_workers>(settings.threads, std::move(settings.elsewhere))),
      late(settings.late ? std::move(settings.late) : [] {}),
      judge(std::move(settings.judge)) {}
};

/// A request's parameters where a constraint decides which tokens may end the answer.
std::shared_ptr<const sampling_params> constrained_params(const sampling_params& p);

class constrained_sampler {
public:
  explicit constrained_sampler(std::shared_ptr<host_sampling> how) : how_(std::move(how)) {}

  /// Begins to make the masks of a plan: those of new sequences and of guesses. Before its `sample`; a second call for
  /// the same plan does nothing.
  void prepare(const step_plan& plan);

  /// Whether a mask is still being made that `sample` would use, guesses' included. Each that is calls host_sampling::late once
  /// it has been made. Behind `prepare`.
  bool lacks_masks(const step_plan& plan) const;

  /// `rows(row)`: row plan.logit_rows[row].
  using rows_fn = std::function<judged_logits(std::int32_t row)>;

  /// Does what of the `sample` of this demand concerns its sequence alone, if it takes long: draws its first token, if
  /// the mask has been made. `sample` must follow. Several threads may do so for different demands at a time. `masked`:
  /// [vocab], of the thread.
  void draw_ahead(const sample_demand& demand, const rows_fn& rows, std::vector<float>& masked,
                  sampling_scratch& scratch);

  void sample(const step_plan& plan, const sample_demand& demand, const rows_fn& rows, sampling_scratch& scratch,
              step_result& result);

  /// The tokens of deferred sequences whose masks have been made.
  void collect_late(sampling_scratch& scratch, step_result& result);

  void forget(sequence_id id) { sequences_.erase(id); }
  std::size_t size() const { return sequences_.size(); }

private:
  /// A copy of a judged_logits.
  struct kept_row {
    std::vector<float> logits;
    std::vector<std::vector<float>> others;
  };
  struct sequence {
    std::shared_ptr<const sampling_start> start; // what it was made from
    sequence_sampler sampler;
    constrained_text text;
    kept_row row = {};                       // while its mask is being made
    std::optional<sampled_token> drawn = {}; // ahead
  };

  static sampled_token draw(sequence& s, const next_tokens& next, const judged_logits& row, std::vector<float>& masked,
                            sampling_scratch& scratch);
  void walk(const step_plan& plan, const sample_demand& demand, sequence& s, const next_tokens& first,
            const rows_fn& rows, sampling_scratch& scratch, step_result& result);
  bool append_forced(sequence& s, const next_tokens& next, const sample_demand& demand, sampling_scratch& scratch,
                     step_result& result);
  void end(sequence_id id, const error& why, step_result& result);

  std::shared_ptr<host_sampling> how_;
  std::map<sequence_id, sequence> sequences_;
  std::map<sequence_id, std::int32_t> deferred_; // and their slots
  std::vector<float> masked_;                    // [vocab]
  std::uint64_t prepared_ = 0;                   // the last plan
};

} // namespace troupe
