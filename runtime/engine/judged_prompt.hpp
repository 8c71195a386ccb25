// Makes what a judge reads ahead of the answers that it values (runtime/sampling/judging.hpp). Pure; any thread.
#pragma once

#include "runtime/chat/jinja/value.hpp"
#include "runtime/sampling/judging.hpp"

#include <memory>
#include <string>
#include <utility>

namespace troupe {

/// What answers to a prompt are judged with. `text`: of its tokens, without special ones; `messages`: that it was
/// rendered from, null if it is a text.
inline std::shared_ptr<const judged_prompt> judged_prompt_of(std::string text, const jinja::value* messages = nullptr,
                                                             bool continues_last = false) {
  auto cost = jinja::meter::unlimited();
  return std::make_shared<const judged_prompt>(
    judged_prompt{std::move(text), messages ? jinja::to_json(cost, *messages) : std::string(), continues_last});
}

} // namespace troupe
