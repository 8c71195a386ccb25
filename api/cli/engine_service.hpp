// The engine as the server sees it: `service` over `engine`, and a model_info as a served_model. Any thread.
#pragma once

#include "api/embed/engine.hpp"
#include "api/openai/service.hpp"

#include <mutex>

namespace troupe {

class engine_service final : public service {
public:
  explicit engine_service(engine of) : engine_(std::move(of)) {}

  service_status status() const override;
  std::shared_ptr<const served_model> model() const override;
  std::unique_ptr<ticket> submit(generation request, event_sink sink) override;
  engine_stats stats() const override { return engine_.stats(); }

private:
  engine engine_;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const served_model> model_; // made when first asked for
};

/// Where a request says nothing: what generation_config.json has, else temperature 1 and no filters, as OpenAI's API
/// documents it. `do_sample` is left aside, as temperature 0 is how a request asks for greedy.
sampling_params default_sampling(const generation_defaults& defaults);

} // namespace troupe
