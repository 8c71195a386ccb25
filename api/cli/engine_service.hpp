// Adapts the engine to the server: `service` over `engine`, and model_info as served_model. Any thread.
#pragma once

#include "api/embed/engine.hpp"
#include "api/openai/service.hpp"

#include <mutex>

namespace troupe {

class engine_service final : public service {
public:
  /// `speculate` is the default of requests.
  engine_service(engine of, speculation speculate) : engine_(std::move(of)), speculate_(speculate) {}

  service_status status() const override;
  std::shared_ptr<const served_model> model() const override;
  request_handle submit(generation request, event_sink sink) override {
    return engine_.submit(std::move(request), std::move(sink));
  }
  engine_stats stats() const override { return engine_.stats(); }

private:
  engine engine_;
  speculation speculate_;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const served_model> model_; // made on first use
};

} // namespace troupe
