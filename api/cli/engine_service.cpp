#include "api/cli/engine_service.hpp"

#include "api/openai/chat_messages.hpp"

namespace troupe {

namespace {

class engine_ticket final : public ticket {
public:
  void cancel() override { request_.cancel(); }
  void pause() override { request_.pause(); }
  void resume() override { request_.resume(); }

  void hold(request_handle request) { request_ = std::move(request); }

private:
  request_handle request_;
};

std::shared_ptr<const served_model> serve(const std::shared_ptr<const model_info>& model) {
  auto served = std::make_shared<served_model>();
  served->id = model->id;
  served->vocab_size = model->vocab_size;
  served->max_context = model->max_context;
  served->schedule_invariant = model->schedule_invariant;
  served->defaults = default_sampling(model->defaults);
  if (const auto tokens = model->tokenizer) {
    served->most_bytes_per_token = tokens->most_bytes_per_token();
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
    if (const auto loaded = engine_.model())
      model_ = serve(loaded);
  return model_;
}

std::unique_ptr<ticket> engine_service::submit(generation request, event_sink sink) {
  auto held = std::make_unique<engine_ticket>(); // first: without it, nobody could cancel what runs
  held->hold(engine_.submit(std::move(request), std::move(sink)));
  return held;
}

sampling_params default_sampling(const generation_defaults& defaults) {
  sampling_params params;
  params.temperature = static_cast<float>(defaults.temperature.value_or(params.temperature));
  params.top_k = defaults.top_k.value_or(params.top_k);
  params.top_p = static_cast<float>(defaults.top_p.value_or(params.top_p));
  params.min_p = static_cast<float>(defaults.min_p.value_or(params.min_p));
  params.repetition_penalty = static_cast<float>(defaults.repetition_penalty.value_or(params.repetition_penalty));
  return params;
}

} // namespace troupe
