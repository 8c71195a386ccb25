// The CPU backend: run-time dispatch over instruction sets, and a thread pool. Idle threads sleep.
#pragma once

#include "kernels/cpu/instruction_sets.hpp"
#include "kernels/ops.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::kernels {

class thread_pool; // kernels/cpu/thread_pool.hpp

struct cpu_options {
  int threads = 0; // 0: one per core that this process may use
  isa target = available_isas().back();
  std::size_t cache = 0;       // bytes of a core's L2, to size blocks; 0: ask the system. Changes no bit
  std::vector<int> cores = {}; // that threads stay on; empty: any
  std::shared_ptr<thread_pool> pool =
    nullptr;        // to compute with, of backends that compute in turn; null: one of its own
  bool led = false; // its caller is a thread of another pool, which counts it (thread_pool)
};

/// Packed matrices of a CPU backend are plain bytes, which a file can keep and lend to any process. See
/// backend::storable.
class storable_matrices {
public:
  virtual ~storable_matrices() = default;

  /// Backends of one instruction set and version make the same bytes of the same weights.
  virtual isa instruction_set() const = 0;
  virtual int layout_version() const = 0;

  /// The backend's threads, for work between its own.
  virtual thread_pool& pool() const = 0;

  /// Ranks that the columns of matrices are divided among (kernels/sharded), which their bytes depend on.
  virtual int shards() const { return 1; }

  /// The memory of a matrix made by `pack` or `pack_gate_up`, in parts, each a multiple of 64 bytes.
  virtual std::vector<std::span<const std::byte>> bytes_of(const matrix& packed) const = 0;

  /// The matrix that `pack` (`gated`: `pack_gate_up`) made of matrices of these formats and shapes; their data is not
  /// read. `bytes` has its parts one after another, `packed_bytes` in total, aligned to 64 bytes. It is shared and only
  /// read.
  virtual std::unique_ptr<matrix> restore(std::span<const stored_matrix> stacked, dtype compute, quantization how,
                                          bool gated, const buffer& bytes) const = 0;

  /// Whether `table_of` the packed form of such a matrix gives what its own table would, bit for bit.
  virtual bool gives_table(const stored_matrix& /*m*/, dtype /*compute*/, quantization /*how*/) const { return false; }

  /// A table for `embed` that reads the rows of a packed matrix, which must outlive it and be one that `gives_table`.
  virtual std::unique_ptr<matrix> table_of(const matrix& /*packed*/) const { return nullptr; }
};

std::unique_ptr<backend> make_cpu_backend(const cpu_options& options = {});

} // namespace troupe::kernels
