// The places at which techniques take part in a step. A technique implements those that it needs; the sampler and the
// runners call them, and know no technique by name.
#pragma once

#include "runtime/support/types.hpp"
#include "runtime/techniques/layer_hook.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace troupe {

class candidates;     // runtime/sampling/candidates.hpp
class technique_use;  // technique.hpp
struct contrast_rows; // runtime/execution/step_runner.hpp
struct step_plan;     // runtime/scheduling/step.hpp

/// Edits the logits of one sequence, behind all other edits. Its state is a function of the generated tokens.
class logits_edit {
public:
  virtual ~logits_edit() = default;
  virtual std::unique_ptr<logits_edit> clone() const = 0;

  /// A token was generated.
  virtual void append(token_id id) = 0;

  /// `logits` [vocab] of the next token.
  virtual void edit(std::span<float>) const {}

  /// The next token, in place of one that a random number chooses among what the filters have left. Nothing: the
  /// random number chooses.
  virtual std::optional<token_id> choose(candidates&) const { return std::nullopt; }
};

/// The edits of one sequence. Copies have states of their own.
class logits_edits {
public:
  logits_edits() = default;
  logits_edits(logits_edits&&) = default;
  logits_edits(const logits_edits& other) {
    for (const auto& each : other.all_)
      all_.push_back(each->clone());
  }
  logits_edits& operator=(logits_edits other) {
    all_ = std::move(other.all_);
    return *this;
  }

  void add(std::unique_ptr<logits_edit> one) { all_.push_back(std::move(one)); }
  auto begin() const { return all_.begin(); }
  auto end() const { return all_.end(); }

private:
  std::vector<std::unique_ptr<logits_edit>> all_;
};

/// Consecutive rows of a step whose request uses a technique.
struct used_rows {
  const technique_use* by = nullptr;
  std::int32_t first_row = 0;      // of the step
  std::int32_t first_position = 0; // of the sequence
  std::int32_t rows = 0;
};

/// Keeps what rows of a step are between layers, and contrasts their logits with what the head makes of it. Each
/// runner has one, which its thread uses. In a pipeline each stage keeps what is behind its own layers, and passes on
/// all that it has.
class inner_rows {
public:
  virtual ~inner_rows() = default;

  /// The hook of a plan's forward pass, valid until the next plan; empty: no row asks for it. `before`: what the stage
  /// ahead of this one has passed on; null: there is none.
  virtual layer_hook keep(const step_plan& plan, const void* before) = 0;

  /// After the pass, for the next stage. Null if no row asks for it.
  virtual std::shared_ptr<const void> pass_on() = 0;

  /// After the pass of the last stage, whose logits are f32 [plan.logit_rows.size(), vocab]: adds rows to `to`, which
  /// has an entry for each of the logits.
  virtual void contrast(const step_plan& plan, const kernels::tensor& logits, contrast_rows& to) = 0;
};

} // namespace troupe
