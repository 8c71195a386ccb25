// Adapts the engine to the server: `service` over `engine`, and model_info as served_model. Any thread.
#pragma once

#include "api/embed/engine.hpp"
#include "api/openai/service.hpp"

#include <mutex>
#include <optional>

namespace troupe {

class engine_service final : public service {
public:
  /// `mark`: of every answer; null: none. `key`: of requests for a watermark that bring none.
  explicit engine_service(engine of, std::shared_ptr<const watermarks::options> mark = nullptr,
                          std::optional<watermarks::hash_key> key = std::nullopt)
    : engine_(std::move(of)), mark_(std::move(mark)), key_(key) {}

  service_status status() const override;
  std::shared_ptr<const served_model> model() const override;
  request_handle submit(generation request, event_sink sink) override {
    return engine_.submit(std::move(request), std::move(sink));
  }
  engine_stats stats() const override { return engine_.stats(); }

private:
  engine engine_;
  std::shared_ptr<const watermarks::options> mark_;
  std::optional<watermarks::hash_key> key_;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const served_model> model_; // made on first use
};

} // namespace troupe
