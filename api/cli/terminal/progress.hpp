// Shows how loading gets on, on stderr: a bar where that is a terminal, else a plain line for each thing done. Called
// by one thread at a time.
#pragma once

#include "api/embed/engine.hpp"

#include <memory>
#include <string>

namespace troupe::cli {

class progress {
public:
  explicit progress(bool quiet = false);

  void show(const load_status& status);

private:
  bool quiet_;
  bool terminal_;
  int percent_ = -1;
  std::string line_;
};

/// Starts an engine, shows how it loads and waits until it is ready. Throws failure where it cannot be.
engine start_engine(const engine_options& options, bool quiet);

} // namespace troupe::cli
