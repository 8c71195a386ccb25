#include "runtime/techniques/speculation/technique.hpp"

#include "runtime/engine/loading/guess_part.hpp"
#include "runtime/engine/loading/opened_model.hpp"
#include "runtime/scheduling/request.hpp"
#include "runtime/support/json/field_reader.hpp"
#include "runtime/techniques/speculation/lookahead_window.hpp"
#include "runtime/techniques/speculation/speculation_part.hpp"

#include <array>

namespace troupe {

namespace {

std::string all_names(const char* quote) {
  std::string all;
  for (const auto& [name, kind] : speculation_names)
    all += (all.empty() ? "" : ", ") + (quote + std::string(name)) + quote;
  return all;
}

class speculation_use final : public technique_use {
public:
  explicit speculation_use(speculation kind) : kind_(kind) {}

  const technique& of() const override { return speculation_technique; }
  speculation kind() const { return kind_; }

  technique_use_ptr fitted(technique_use_ptr self, const generation&, const technique_limits& limits) const override {
    const auto* there = limits.values ? limits.values->find<guessing_models>(speculation_technique) : nullptr;
    if (kind_ == speculation::draft && (!there || there->draft.empty()))
      throw failure(errc::bad_request, "`speculate` is \"draft\", but there is no draft model; give one with --draft",
                    speculate_flag);
    if (kind_ == speculation::mtp && (!there || !there->mtp))
      throw failure(errc::bad_request,
                    "`speculate` is \"mtp\", but no layers of multi-token prediction are loaded for this model",
                    speculate_flag);
    return self;
  }

private:
  speculation kind_;
};

technique_use_ptr read(const field_reader& body, const technique_facts&) {
  const auto name = body.text(speculate_flag);
  if (!name)
    return nullptr;
  if (const auto kind = speculation_of(*name))
    return speculated_by(*kind);
  body.refuse(speculate_flag, "must be one of " + all_names("\"") + ", not \"" + std::string(*name) + '"');
}

std::unique_ptr<guess_part> guess(const engine_options& options, const opened_model& opened, const log_sink& log) {
  return std::make_unique<speculation_part>(options, opened, log);
}

void check_lookahead(std::string_view shape) {
  if (!lookahead_shape_of(shape))
    throw failure(errc::bad_request,
                  "`lookahead` must be W,N,G: a window of W places, n-grams of N tokens (2 to 8), G of them verified, "
                  "and (W + G) * (N - 1) at most 60, not \"" +
                    std::string(shape) + '"',
                  lookahead_flag);
}

using option = technique_option;

constexpr auto table = std::to_array<option>({
  {.name = draft_flag,
   .where = option::second | option::leading,
   .type = "PATH",
   .help = "A smaller model with the same vocabulary that guesses tokens ahead, so that one step can check "
           "several; none: no draft",
   .fallback = "the bundled storyteller's, for the storyteller",
   .elsewhere = "model-draft speculative-model"},
  {.name = speculate_flag,
   .where = option::completion | option::chat | option::second,
   .what = option::kind::choice,
   .type = "auto|off|draft|mtp|ngram|lookahead|jacobi",
   .help =
     "Where guesses come from: the draft model, the model's own layers of multi-token prediction (mtp), earlier text "
     "that continues the last words (ngram), the model's own corrections of a window of guesses (jacobi), also as "
     "n-grams (lookahead), or off; auto: whatever guesses best, as long as it pays. On a CPU, guesses of draft, mtp "
     "and "
     "ngram may branch: a step checks several continuations side by side. Answers stay the same",
   .fallback = "auto"},
  {.name = draft_tokens_flag,
   .where = option::second,
   .what = option::kind::integer,
   .help = "Guess so many tokens of each answer in each step, branches counted, also where it does not pay; 0: as many "
           "as pay",
   .least = 0,
   .most = 16,
   .fallback = "0"},
  {.name = draft_threads_flag,
   .where = option::second,
   .what = option::kind::integer,
   .help = "Threads of the draft model's own, beside those of --threads: it guesses on while the model verifies, so "
           "that the next step need not wait for guesses where all were right. Pays where the cores would be idle; 0: "
           "both compute in turn",
   .least = 0,
   .most = 1024,
   .fallback = "0",
   .elsewhere = "threads-draft"},
  {.name = draft_device_flag,
   .where = option::second,
   .type = "DEVICE",
   .help = "What the draft model computes on, as --device names it, such as cuda:1 beside a model on cuda:0, or cpu "
           "beside one on a GPU: it guesses on while the model verifies",
   .fallback = "the model's own",
   .elsewhere = "device-draft"},
  {.name = lookahead_flag,
   .where = option::second,
   .type = "W,N,G",
   .help = "With --speculate lookahead, as published: each step corrects a window of W guesses at N - 1 levels and "
           "verifies G n-grams of N tokens side by side, (W + G) * (N - 1) rows (at most 60), also where it does "
           "not pay; none: one line of as many guesses as pay",
   .check = check_lookahead},
});

} // namespace

technique_use_ptr speculated_by(speculation kind) {
  return kind == speculation::automatic ? nullptr : std::make_shared<speculation_use>(kind);
}

speculation speculation_of(const technique_uses& uses) {
  const auto* use = uses.find<speculation_use>(speculation_technique);
  return use ? use->kind() : speculation::automatic;
}

speculation speculation_of(const flag_values& flags) {
  const auto name = text_of(flags, speculate_flag);
  if (const auto kind = speculation_of(name); kind || name.empty())
    return kind.value_or(speculation::automatic);
  throw failure(errc::bad_request, "`speculate` must be one of " + all_names("") + ", not " + name, speculate_flag);
}

const technique speculation_technique{.name = "speculation", .options = table, .read = read, .guess = guess};

} // namespace troupe
