// A reward model beside the engine's own: a model for classification with one label, which values the answers of tree
// searches by their text. How it is loaded, what it reads, and what its scores are worth. A function of the text alone.
#pragma once

#include "runtime/chat/jinja/value.hpp"
#include "runtime/engine/engine_options.hpp"
#include "runtime/sampling/judging.hpp"
#include "runtime/support/types.hpp"

#include <memory>
#include <span>
#include <string>
#include <vector>

namespace troupe {

/// Of the engine of options.reward_model: on the same device, with the same types, and a KV cache for one long text.
engine_options reward_options(const engine_options& options);

/// Throws failure(unsupported) with a sentence unless the model can judge.
void require_judge(const model_info& judge);

/// A conversation is rendered by the judge's chat template, with the answer as the assistant's message; where it has
/// none, and of a text, the answer follows the text. Throws failure(bad_request) if that is too long for the judge, or
/// its template refuses it.
std::vector<token_id> judged_ids(const model_info& judge, const judged_prompt& prompt, const std::string& answer);

/// From 0 to 1, out of the pooled state of such ids. Throws failure(internal) if it is no number.
double judged_value(const model_info& judge, std::span<const float> pooled);

/// What answers to a prompt are judged with. `text`: of its tokens, without special ones; `messages`: that it was
/// rendered from, null if it is a text.
std::shared_ptr<const judged_prompt> judged_prompt_of(std::string text, const jinja::value* messages = nullptr,
                                                      bool continues_last = false);

} // namespace troupe
