// What a simulated client has heard of its request, and whether that is right: the same as alone, or as much of it as it
// asked for.
#pragma once

#include "runtime/engine/generation.hpp"
#include "tests/listener.hpp"

#include <string>

namespace troupe::simulation {

class hearing {
public:
  /// Whether it was the last event.
  bool take(const event& e);

  bool ended() const { return what_.done || what_.failed; }
  const testing::heard& what() const { return what_; }
  /// What is wrong with the order of its events; empty: nothing.
  const std::string& trouble() const { return trouble_; }

private:
  testing::heard what_;
  std::string trouble_;
};

/// Whether all of `part` begins `whole`: tokens, texts and log-probabilities, bit for bit. Of requests that were ended early.
bool begins(const testing::heard& part, const testing::heard& whole);

} // namespace troupe::simulation
