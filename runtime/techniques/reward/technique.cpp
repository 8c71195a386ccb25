#include "runtime/techniques/technique.hpp"
#include "runtime/engine/generation.hpp"
#include "runtime/model/pooled_head.hpp"
#include "runtime/techniques/reward/reward_model.hpp"

#include <array>

namespace troupe {

namespace {

generation question(const model_info& judge, const judged_prompt& prompt, const std::string& answer) {
  generation text;
  text.prompt = judged_ids(judge, prompt, answer);
  text.sampling.max_tokens = 1; // valid, though nothing is sampled
  text.embed = judge.ranker->how();
  return text;
}

using option = technique_option;

constexpr auto table = std::to_array<option>({
  {reward_flag, option::second, option::kind::text, "PATH",
   "A model for classification with one label (a reward model) that values the answers of tree searches which ask for "
   "it"},
});

constexpr answer_judge reward_judge{.flag = reward_flag,
                                    .name = "reward model",
                                    .options = reward_options,
                                    .require = require_judge,
                                    .question = question,
                                    .value = judged_value};

} // namespace

extern const technique reward_technique;
const technique reward_technique{.name = "reward", .options = table, .judge = &reward_judge};

} // namespace troupe
