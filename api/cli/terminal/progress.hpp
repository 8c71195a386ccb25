// Shows the progress of loading on stderr: a bar on a terminal, else one plain line per stage. Called by one thread at
// a time.
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

/// Starts an engine, shows its progress and waits until it is ready. Throws failure if loading fails.
engine start_engine(const engine_options& options, bool quiet);

} // namespace troupe::cli
