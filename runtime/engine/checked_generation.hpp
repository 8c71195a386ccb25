// Admission of a generation by a model: the only place that decides whether a prompt and its parameters can be served,
// and with which limits. Pure; any thread.
#pragma once

#include "runtime/engine/generation.hpp"
#include "runtime/techniques/technique.hpp"

#include <chrono>
#include <cstddef>
#include <string_view>

namespace troupe {

/// What a loaded model allows one request.
struct generation_limits {
  int vocab_size = 0;
  int max_context = 0;                       // tokens of prompt and answer
  std::chrono::milliseconds timeout{0};      // 0: none
  std::chrono::milliseconds ttft_timeout{0}; // 0: none
  bool embeds = true;                        // the device gives hidden states
  bool generates = true;                     // it has an output head; an encoder has none
  technique_limits techniques = {};
};

/// The request with its features, for the actor that makes it to complete. Throws failure(bad_request) that names the
/// field if the prompt is empty, leaves no room for an answer or has ids outside the vocabulary, a sampling parameter is
/// out of range, the timeout is longer than the limit, an embedding is asked for beside something generated or scored, or
/// a technique refuses it.
request check(const generation& asked, const generation_limits& limits);

/// What a request for an answer gets from an encoder.
failure encodes_only();

/// Throws failure(bad_request) unless a prompt of so many tokens leaves room for an answer, if it gets one. For
/// interfaces that know the length before they have the ids; `field` is what their requests call the prompt.
void check_prompt_length(std::size_t tokens, int max_context, std::string_view field = {}, bool answered = true);

} // namespace troupe
