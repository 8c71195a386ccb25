// Speculation as a technique: which kind of guesses an engine or a request wants. Tokens and log-probabilities do not
// depend on it.
#pragma once

#include "runtime/techniques/guesser.hpp"
#include "runtime/techniques/speculation/drafter.hpp"
#include "runtime/techniques/speculation/speculation_names.hpp"
#include "runtime/techniques/technique_uses.hpp"

#include <functional>
#include <memory>
#include <string>

namespace troupe {

extern const technique speculation_technique;

/// The use that a request asks for. Null: whatever the engine has.
technique_use_ptr speculated_by(speculation kind);

/// What a request wants.
speculation speculation_of(const technique_uses& uses);

/// What guesses beside a loaded model, as the engine keeps it.
struct guessing_models {
  std::string draft = {}; // the draft model's name; empty: none
  bool mtp = false;       // layers of multi-token prediction
};

/// In engine_internals::techniques, for benches.
struct guessing_internals {
  drafter_factory drafter = {}; // what it makes is a sequence's only source
  bool branches = true;         // guesses may branch
  std::function<std::unique_ptr<guess_model>(std::unique_ptr<guess_model>)> around = {}; // the draft model
};

/// Flags, by which an engine is set up.
inline constexpr auto draft_flag = "draft", speculate_flag = "speculate", draft_tokens_flag = "draft_tokens",
                      draft_threads_flag = "draft_threads", draft_device_flag = "draft_device",
                      lookahead_flag = "lookahead";

/// What the flag says of requests that leave it to the engine. Throws failure(bad_request).
speculation speculation_of(const flag_values& flags);

} // namespace troupe
