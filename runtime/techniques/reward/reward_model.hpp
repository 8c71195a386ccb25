// A reward model beside the engine's own: a model for classification with one label, which values the answers of tree
// searches by their text. How it is loaded, what it reads, and what its scores are worth. A function of the text alone.
#pragma once

#include "runtime/engine/engine_options.hpp"
#include "runtime/sampling/judging.hpp"
#include "runtime/support/types.hpp"

#include <span>
#include <string>
#include <vector>

namespace troupe {

struct loaded_model; // runtime/engine/loading/loaded_model.hpp

/// The name of its flag.
inline constexpr auto reward_flag = "reward_model";

/// The options of the reward model's engine: the same device and types, and a KV cache for one long text.
engine_options reward_options(const engine_options& options);

/// Throws failure(unsupported) with a sentence unless the model can judge, and its device gives what it judges by.
void require_judge(const loaded_model& judge);
void require_judge(const model_info& judge); // the model alone

/// A conversation is rendered by the judge's chat template, with the answer as the assistant's message; where it has
/// none, and of a text, the answer follows the text. Throws failure(bad_request) if that is too long for the judge, or
/// its template refuses it.
std::vector<token_id> judged_ids(const model_info& judge, const judged_prompt& prompt, const std::string& answer);

/// From 0 to 1, out of the pooled state of such ids. Throws failure(internal) if it is no number.
double judged_value(const model_info& judge, std::span<const float> pooled);

} // namespace troupe
