#include "api/cli/engine_service.hpp"

#include "api/openai/chat_messages.hpp"

namespace troupe {

namespace {

std::shared_ptr<served_model> serve(const std::shared_ptr<const model_info>& model) {
  auto served = std::make_shared<served_model>();
  served->id = model->id;
  served->vocab_size = model->vocab_size;
  served->max_context = model->max_context;
  served->schedule_invariant = model->schedule_invariant;
  served->defaults = model->defaults.sampling;
  served->family = model->family;
  served->weights = model->weights;
  served->device = model->device;
  served->weight_bytes = model->weight_bytes;
  served->parameters = model->parameters;
  served->hidden = model->hidden;
  served->embeddings = model->embeddings;
  served->steering = model->steering;
  served->adapters = model->adapters;
  served->lora_endpoints = model->lora_endpoints;
  served->format = model->format;
  served->markers = model->markers;
  if (const auto tokens = model->tokenizer) {
    served->most_bytes_per_token = tokens->most_bytes_per_token();
    const auto written = [&](std::optional<token_id> id) {
      return id ? std::optional<std::string>(tokens->token(*id)) : std::nullopt;
    };
    served->bos_token = written(tokens->bos());
    served->eos_token = written(tokens->eos());
    served->encode = [tokens](std::string_view text, bool special) { return tokens->encode(text, special); };
    served->decode = [tokens](std::span<const token_id> ids, bool skip) { return tokens->decode(ids, skip); };
    served->token_bytes = [tokens](token_id id) { return tokens->token_bytes(id); };
  }
  if (const auto chat = model->chat)
    served->render = [chat](const chat_input& input) {
      return chat->render({.messages = input.messages,
                           .tools = input.tools,
                           .add_generation_prompt = input.add_generation_prompt,
                           .extra = input.variables,
                           .stop = input.stop});
    };
  return served;
}

} // namespace

service_status engine_service::status() const {
  using stage = load_status::stage;
  const auto now = engine_.status();
  service_status status{now.now == stage::ready, "", now.done_bytes, now.total_bytes,
                        now.why ? now.why->message : now.line};
  switch (now.now) {
    case stage::loading: status.state = "loading"; break;
    case stage::ready: status.state = "ready"; break;
    case stage::failed: status.state = "failed"; break;
    case stage::stopped: status.state = "stopped"; break;
  }
  return status;
}

std::shared_ptr<const served_model> engine_service::model() const {
  const std::lock_guard lock(mutex_);
  if (!model_)
    if (const auto loaded = engine_.model()) {
      auto served = serve(loaded);
      served->watermark = mark_;
      served->watermark_key = key_;
      model_ = std::move(served);
    }
  return model_;
}

} // namespace troupe
