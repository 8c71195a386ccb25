#include "runtime/engine/checked_generation.hpp"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

namespace troupe {

namespace {

void check_ids(const std::vector<token_id>& ids, int vocab_size, const char* field) {
  for (const auto t : ids)
    if (t < 0 || t >= vocab_size)
      throw failure(errc::bad_request,
                    "the " + std::string(field) + " names token " + std::to_string(t) + ", but the vocabulary has " +
                      std::to_string(vocab_size),
                    field);
}

void check_prediction(const std::vector<token_id>& prediction, const generation_limits& limits) {
  if (std::ssize(prediction) > limits.max_context)
    throw failure(errc::bad_request,
                  "`prediction` has " + std::to_string(prediction.size()) + " tokens; at most " +
                    std::to_string(limits.max_context) + " fit into the context",
                  "prediction");
  check_ids(prediction, limits.vocab_size, "prediction");
}

} // namespace

void check_prompt_length(std::size_t tokens, int max_context, std::string_view field) {
  const auto context = static_cast<std::size_t>(max_context);
  const auto refuse = [&](const std::string& why) {
    const auto subject = field.empty() ? "the prompt" : "`" + std::string(field) + "`";
    throw failure(errc::bad_request, subject + why, field.empty() ? "prompt" : std::string(field));
  };
  if (tokens == 0)
    refuse(" must have at least one token");
  if (tokens >= context)
    refuse(" has " + std::to_string(tokens) + " tokens; at most " + std::to_string(context - 1) +
           " fit into the context of " + std::to_string(context));
}

checked_generation check(const generation& asked, const generation_limits& limits) {
  check_prompt_length(asked.prompt.size(), limits.max_context);
  check_ids(asked.prompt, limits.vocab_size, "prompt");
  check_prediction(asked.prediction, limits);
  auto sampling = asked.sampling;
  sampling.validate(static_cast<std::size_t>(limits.vocab_size));
  if (sampling.speculate == speculation::draft && !limits.draft_model)
    throw failure(errc::bad_request, "`speculate` asks for a draft model, but none is loaded", "speculate");
  const auto room = limits.max_context - static_cast<int>(std::ssize(asked.prompt));
  sampling.max_tokens = std::min(sampling.max_tokens, room);
  const auto timeout = timeout_of(asked.timeout, limits.timeout);
  return {std::make_shared<const sampling_params>(std::move(sampling)), timeout};
}

} // namespace troupe
