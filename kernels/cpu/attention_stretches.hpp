// Which blocks of a partition the queries of a tile read together: those of sequences that begin with the same blocks,
// where these end within the partition. Decides the schedule only. Plain functions, called by the threads of the pool.
#pragma once

#include "kernels/cpu/target.hpp"

#include <span>
#include <vector>

namespace troupe::kernels {

/// Neighbouring queries of a tile that read one block table.
struct table_reader {
  const std::int32_t* blocks = nullptr; // from the partition's start
  int queries = 0;
  int end = 0; // blocks that some of them see, at least 1
};

/// Appends the stretches of a tile whose queries are those of `readers`, in order. Readers of equal blocks are to be
/// neighbours, or they do not share them.
void add_stretches(std::span<const table_reader> readers, std::vector<attention_stretch>& to);

} // namespace troupe::kernels
