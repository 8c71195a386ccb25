// Whether what decides within an actor is in order: called behind each of its messages.
#pragma once

#include "runtime/scheduling/blocks/block_manager.hpp"

#include <string>

namespace troupe {

/// A friend of block_manager and its parts.
struct block_audit {
  /// What is wrong; empty: nothing. Blocks are conserved, each is in one place, references are those of tables, the index
  /// knows exactly what is cached, snapshots are conserved.
  static std::string of(const block_manager& m);
};

} // namespace troupe
