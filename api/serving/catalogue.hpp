// The engines that a server serves, by the names of their models: `service` over `engine`. Today it holds one. Any
// thread.
#pragma once

#include "api/embed/engine.hpp"
#include "api/service/service.hpp"

#include <memory>
#include <mutex>

namespace troupe {

class catalogue final : public service {
public:
  explicit catalogue(engine only) : only_(std::move(only)) {}

  service_status status() const override;
  std::vector<std::shared_ptr<const served_model>> models() const override;
  request_handle submit(generation request, event_sink sink) override;
  engine_stats stats() const override { return only_.stats(); }
  std::shared_ptr<const void> watch(step_sink sink) const override { return only_.watch(std::move(sink)); }
  engine_snapshot look() const override { return only_.look(); }

private:
  engine only_;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const served_model> model_; // made on first use
};

} // namespace troupe
