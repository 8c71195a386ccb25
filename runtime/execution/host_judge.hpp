// What samplers of every device do on the host: judge groups of sequences, score prompts, sample constrained sequences,
// and walk along guesses as long as they are right. Defers a group whose masks are not ready, as constrained_sampler
// does, and a search that waits for a judge's values. Owned by one step_sampler; single-threaded.
#pragma once

#include "runtime/execution/constrained_sampler.hpp"
#include "runtime/sampling/group_strategy.hpp"
#include "runtime/sampling/judging.hpp"
#include "runtime/sampling/sampler.hpp"
#include "runtime/scheduling/step.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace troupe {

/// The row of the guess `token` that follows the one in `row`, both counted from the row of the last known token (which
/// is followed by the guesses' rows, in order). None: it was not guessed.
inline std::optional<std::int32_t> right_guess(const step_plan& plan, const sample_demand& demand, std::int32_t row,
                                               token_id token) {
  for (auto next = row + 1; next <= demand.guesses; ++next) {
    const bool follows = !demand.parents || (*demand.parents)[static_cast<std::size_t>(next) - 1] == row - 1;
    if (follows && plan.token_of(demand.logit_row + next) == token)
      return next;
    if (!demand.parents)
      break;
  }
  return std::nullopt;
}

/// How far the guesses' rows are behind that of the last known token, whose 0 is the first.
std::vector<std::int32_t> depths_of(const sample_demand& demand);

/// Appends the tokens that one demand yields. `draw(row)` samples from a row (0: of the last known token), appends the
/// token to the sequence and returns it. `reaches(row)`: whether that of a right guess can be drawn from. Returns whether
/// the sequence goes on.
template <class Draw, class Reaches = bool (*)(std::int32_t)>
bool take_tokens(
  const step_plan& plan, const sample_demand& demand, Draw draw, step_result& result,
  Reaches reaches = [](std::int32_t) { return true; }) {
  std::vector<token_id> choices(demand.guesses > 0 ? static_cast<std::size_t>(demand.guesses) + 1 : 0, -1);
  for (std::int32_t right = 0, row = 0;; ++right) {
    sampled_token token = draw(row);
    const bool goes_on = token.finish == sampled_token::finish::none;
    const auto next = goes_on ? right_guess(plan, demand, row, token.id).value_or(0) : 0;
    const bool follows = next > 0 && reaches(next);
    if (demand.guesses > 0)
      choices[static_cast<std::size_t>(row)] = token.id;
    result.sampled.push_back({demand.sequence, demand.slot, std::move(token), follows});
    if (follows) {
      row = next;
      continue;
    }
    if (demand.guesses > 0)
      result.judged.push_back({demand.sequence, demand.guesses, right, std::move(choices), row, demand.predicted});
    return goes_on;
  }
}

/// Completes what a walk has left open: what would have followed each guess that was not reached, had it been right.
/// `guess(row, ahead)`: as sequence_sampler::guess.
template <class Guess>
void guess_the_rest(const sample_demand& demand, judged_guesses& judged, Guess guess) {
  const auto depths = depths_of(demand);
  for (std::size_t row = 0; row < judged.choices.size(); ++row)
    if (judged.choices[row] < 0)
      judged.choices[row] = guess(static_cast<std::int32_t>(row),
                                  static_cast<std::uint64_t>(std::int64_t(depths[row]) - judged.accepted - 1));
}

/// Samples what one demand yields on the host. `row(i)`: row i of the demand, a judged_logits or logits. Also reports
/// what would have followed each wrong guess had it been right. Returns whether the sequence goes on. Throws failure as
/// `sample`.
template <class Row>
bool sample_on_host(const step_plan& plan, const sample_demand& demand, sequence_sampler& sequence, Row row,
                    sampling_scratch& scratch, step_result& result) {
  const bool goes_on = take_tokens(
    plan, demand,
    [&](std::int32_t i) {
      const judged_logits r = row(i);
      return sequence.sample(r.logits, r.logits, scratch, r.others);
    },
    result);
  if (demand.guesses > 0)
    guess_the_rest(demand, result.judged.back(), [&](std::int32_t i, std::uint64_t ahead) {
      const judged_logits r = row(i);
      return sequence.guess(r.logits, ahead, scratch, r.others);
    });
  return goes_on;
}

class host_judge {
public:
  host_judge(std::vector<token_id> eos_ids, host_settings settings)
    : how_(std::make_shared<host_sampling>(std::move(eos_ids), std::move(settings))), constrained_(how_) {}

  const std::vector<token_id>& eos_ids() const { return how_->eos_ids; }
  constrained_sampler& constrained() { return constrained_; }

  /// Whether a plan has groups or prompts, and so `judge` has anything to do.
  static bool concerns(const step_plan& plan) { return !plan.groups.empty() || !plan.scores.empty(); }

  /// Begins to make the masks of a plan. Before `judge`.
  void prepare(const step_plan& plan);

  /// Whether a mask is still being made, as constrained_sampler::lacks_masks tells. Behind `prepare`.
  bool lacks_masks(const step_plan& plan) const;

  /// The rows of logits that `judge` reads, indices into plan.logit_rows.
  static std::vector<std::int32_t> rows(const step_plan& plan);

  /// `logits(row)`: [vocab], of row plan.logit_rows[row].
  using logits_fn = std::function<std::span<const float>(std::int32_t row)>;
  void judge(const step_plan& plan, const logits_fn& logits, sampling_scratch& scratch, step_result& result);

  /// The outcomes of deferred sequences and groups whose masks have been made.
  step_result collect_late(sampling_scratch& scratch);

  /// The outcomes of the groups that have waited for this verdict.
  step_result settle(const verdict& its);

  /// The sequence has ended, or the group that had it.
  void forget(sequence_id id) { constrained_.forget(id), groups_.erase(id.request); }

private:
  /// An order that a group waits for. It is withdrawn when the group ends before.
  struct open_order {
    judge_order_ptr what;
    std::shared_ptr<const host_sampling> how;

    open_order(judge_order_ptr order, std::shared_ptr<const host_sampling> asked)
      : what(std::move(order)), how(std::move(asked)) {}
    open_order(const open_order&) = delete;
    open_order& operator=(const open_order&) = delete;
    ~open_order() {
      if (what)
        how->judge.withdraw(what);
    }
  };

  struct group {
    std::shared_ptr<const sampling_start> start; // what it was made from
    std::unique_ptr<group_strategy> strategy;
    std::vector<constrained_text> texts = {};  // of its sequences, if they are constrained; a twin is not
    std::vector<std::vector<float>> rows = {}; // [vocab] each, kept while their masks are being made
    std::unique_ptr<open_order> order = {};    // whose verdict it waits for
  };
  using group_map = std::map<std::uint64_t, group>; // by request

  void judge(const group_demand& demand, const logits_fn& logits, sampling_scratch& scratch, step_result& result);
  bool lacks_masks(const group& g) const;
  constrained_text text_of(sampling_start start, const std::vector<token_id>& answer) const;
  void decide(group_map::iterator g, std::span<const std::span<const float>> logits, sampling_scratch& scratch,
              step_result& result);
  void go_on(group_map::iterator g, const verdict& its, step_result& result);
  void book(group_map::iterator g, std::vector<group_child> children, step_result& result);
  void end(group_map::iterator g, const failure& why, step_result& result);
  std::unique_ptr<open_order> ask(const group& g, std::span<const std::vector<token_id>> answers) const;
  std::vector<std::span<const float>> masked(const group& g, std::span<const std::span<const float>> logits);

  std::shared_ptr<host_sampling> how_;
  constrained_sampler constrained_;
  group_map groups_;
  std::vector<std::vector<float>> masked_; // [vocab] each
};

} // namespace troupe
