// What the listener of an engine is told by the engine actor, on whose thread it is used: each time a load_status.
#pragma once

#include "actors/engine.hpp"

#include <string>
#include <utility>

namespace troupe {

class engine_status {
public:
  explicit engine_status(engine_listener to) : to_(std::move(to)) {}

  const engine_listener& listener() const { return to_; }

  /// `degraded`: why not all of it serves; empty: all does.
  void ready(std::string line, std::string degraded, const loaded_model_ptr& model) const {
    load_status status;
    status.now = load_status::stage::ready;
    status.line = std::move(line);
    status.degraded = std::move(degraded);
    to_(status, model);
  }
  void news(log_line line) const {
    load_status status;
    status.now = load_status::stage::ready;
    status.news = std::move(line.text);
    status.level = line.level;
    to_(status, nullptr);
  }
  void failed(const error& why) const {
    load_status status;
    status.now = load_status::stage::failed;
    status.why = why;
    to_(status, nullptr);
  }
  /// `line`: a warning; empty: there is none.
  void stopped(std::string line) const {
    load_status status;
    status.now = load_status::stage::stopped;
    status.level = line.empty() ? status.level : log_level::warn;
    status.line = std::move(line);
    to_(status, nullptr);
  }

private:
  engine_listener to_;
};

} // namespace troupe
