// Uses of a model in an engine_house: they keep it loaded. One that reads a request's body holds it until the request is
// submitted, the request itself until its last event, whoever still reads its answer. Any thread.
#pragma once

#include "api/catalogue/engine_house.hpp"
#include "api/service/service.hpp"

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>

namespace troupe {

/// Keeps a model loaded.
struct use_of_model {
  use_of_model(std::shared_ptr<engine_house> of, std::size_t number, std::shared_ptr<const served_model> its);
  use_of_model(const use_of_model&) = delete;
  use_of_model& operator=(const use_of_model&) = delete;
  ~use_of_model();

  const std::shared_ptr<engine_house> house;
  const std::size_t model;
  const std::shared_ptr<const served_model> served;
};

/// A request that a model's engine has: a hold on it that outlives the engine, which whoever submitted it may keep for
/// as long as they like. Ends the use that was begun for it.
class used_request final : public request_control, public std::enable_shared_from_this<used_request> {
public:
  used_request(std::shared_ptr<engine_house> house, std::size_t model) : house_(std::move(house)), model_(model) {}
  used_request(const used_request&) = delete;
  used_request& operator=(const used_request&) = delete;
  ~used_request() override { end(); }

  /// While its engine is there. The last event may have come before.
  void submitted(request_handle of);
  /// Its last event has come, or never will. What its client gets instead, if it was cut.
  std::optional<error> end();
  /// Nobody reads its answer, for which others wait. With the house's mutex held.
  void cut(error why);

  void cancel() override;
  void pause(bool paused) override;
  void finish() override;
  void end_reasoning() override;
  void hand_over() override;
  std::shared_ptr<const request_ledger> ledger() const override;

private:
  const std::shared_ptr<engine_house> house_;
  const std::size_t model_;
  // The house's mutex guards what follows.
  request_handle of_; // nothing: it has ended
  std::shared_ptr<const request_ledger> ledger_;
  bool ended_ = false;
  std::optional<error> cut_;
};

} // namespace troupe
