#include "runtime/engine/checked_generation.hpp"

#include "runtime/engine/context_length.hpp"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

namespace troupe {

namespace {

void check_ids(const char* field, const std::vector<token_id>& ids, int vocab_size) {
  for (const auto t : ids)
    if (t < 0 || t >= vocab_size)
      throw failure(errc::bad_request,
                    "the " + std::string(field) + " names token " + std::to_string(t) + ", but the vocabulary has " +
                      std::to_string(vocab_size),
                    field);
}

void check_embedding(const generation& asked, const generation_limits& limits) {
  if (!limits.embeds)
    throw failure(errc::unsupported, "embeddings are not supported on this device, only on the CPU (--device cpu)",
                  "model");
  if (asked.sampling.width() > 1 || asked.sampling.grouped() || asked.sampling.prompt_logprobs >= 0 ||
      asked.sampling.techniques.constraint())
    throw failure(errc::bad_request, "an embedding needs one prompt, and nothing may be generated or scored", "embed");
}

} // namespace

failure encodes_only() {
  return failure(errc::unsupported,
                 "this model is an encoder: it makes embeddings or scores of texts, and generates nothing", "model");
}

void check_prompt_length(std::size_t tokens, int max_context, std::string_view field, bool answered) {
  const auto subject = field.empty() ? "the prompt" : "`" + std::string(field) + "`";
  const auto param = field.empty() ? "prompt" : std::string(field);
  if (tokens == 0)
    throw failure(errc::bad_request, subject + " must have at least one token", param);
  if (const auto most = static_cast<std::size_t>(max_context) - (answered ? 1 : 0); tokens > most)
    throw beyond_context(max_context,
                         subject + " has " + std::to_string(tokens) + " tokens, and may have " + std::to_string(most) +
                           (answered ? " to leave room for an answer" : ""),
                         param);
}

request check(const generation& asked, const generation_limits& limits) {
  const bool embeds = asked.embed != pooling::none;
  check_prompt_length(asked.prompt.size(), limits.max_context, {}, !asked.sampling.scores_only() && !embeds);
  if (!embeds && !limits.generates)
    throw encodes_only();
  if (asked.second < 0 || asked.second >= std::ssize(asked.prompt))
    throw failure(errc::bad_request, "the second text must begin within the prompt", "second");
  if (embeds)
    check_embedding(asked, limits);
  check_ids("prompt", asked.prompt, limits.vocab_size);
  if (asked.prediction.size() > static_cast<std::size_t>(limits.max_context))
    throw failure(errc::bad_request,
                  "the prediction has " + std::to_string(asked.prediction.size()) + " tokens; the context is " +
                    std::to_string(limits.max_context),
                  "prediction");
  check_ids("prediction", asked.prediction, limits.vocab_size);
  request checked{asked};
  auto& sampling = checked.sampling;
  sampling.validate(static_cast<std::size_t>(limits.vocab_size));
  sampling.techniques = asked.sampling.techniques.fitted(asked, limits.techniques);
  auto context = limits.max_context;
  for (const auto& use : sampling.techniques)
    if (use->context() > 0)
      context = std::min(context, use->context());
  sampling.max_tokens = std::min(sampling.max_tokens, context - static_cast<int>(std::ssize(asked.prompt)));
  if (!asked.negative_prompt.empty()) {
    check_prompt_length(asked.negative_prompt.size(), limits.max_context, "negative_prompt");
    check_ids("negative_prompt", asked.negative_prompt, limits.vocab_size);
  }
  auto& negative = checked.negative_prompt;
  if (!sampling.paired())
    negative.clear();
  else if (negative.empty())
    negative = {asked.prompt.back()};
  sampling.max_tokens = std::min(sampling.max_tokens, limits.max_context - static_cast<int>(std::ssize(negative)));
  row_features features;
  for (const auto& use : sampling.techniques)
    if (use->of_rows()) {
      features.used.set(use);
      features.salt = salted(features.salt, use->salt());
    }
  features.salt = salted(features.salt, client_salt(asked.cache_salt));
  checked.timeout = timeout_of(asked.timeout, limits.timeout);
  checked.ttft_timeout = timeout_of(asked.ttft_timeout, limits.ttft_timeout, "ttft_timeout");
  if (features.salt != 0 || !features.used.empty()) // all others have a part in the salt
    checked.features = std::make_shared<const row_features>(std::move(features));
  return checked;
}

} // namespace troupe
